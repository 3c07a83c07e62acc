//! Draws a topology: `picture` decides what is drawn, and each format has a module of its own.
//!
//! A picture is for people, so the ladder is one node and not 27 queues, and in a topology with very many types those
//! with equal settings share one lane. Names are drawn without the topology's name, with which all of them begin.

mod dot;
mod drawing;
mod mermaid;
pub mod picture;
mod svg;
mod text;

pub use self::{dot::dot, drawing::Drawing, mermaid::mermaid, picture::Picture, svg::svg, text::text};
