//! Plans, applies and looks after a topology on RabbitMQ, as the command `topology` does.
//!
//! The modules are for that command and for the tests of this repository. They change in any release.

#[doc(hidden)]
pub mod broker;
#[doc(hidden)]
pub mod figures;
#[doc(hidden)]
pub mod management;
#[doc(hidden)]
pub mod observed;
#[doc(hidden)]
pub mod plan;
