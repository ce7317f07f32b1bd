//! The Palisade server.
