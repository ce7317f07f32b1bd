#![no_std]
//! (under construction)
extern crate alloc;
