//! A topology as a picture: what is drawn, and how in each format.
//!
//! A picture is for people, so the ladder is one thing and not 27 queues, and of a thousand types those that are alike
//! are one lane. Names are drawn without the topology's own, which all of them begin with.

mod dot;
mod drawing;
mod mermaid;
mod picture;
mod svg;
mod text;

pub(crate) use self::{dot::dot, drawing::Drawing, mermaid::mermaid, picture::Picture, svg::svg, text::text};

#[cfg(test)]
mod tests;
