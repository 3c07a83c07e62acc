//! Services as handlers: `topology work --http`.

mod answers;
mod connections;
mod limits;
mod service;
