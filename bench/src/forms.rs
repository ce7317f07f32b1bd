//! Requests made once and sent many times: only the fields that change are written anew, at places
//! of fixed width, and the checksum is made again.

use palisade_types::{Class, Key, Mode, OnDeath, RequestId, SessionId, Ticket};
use palisade_wire::{HEADER_BYTES, Kind, Request, Wait};

use crate::error::BenchError;

/// Of a frame's header (net/PROTOCOL.md, section 1).
const ID_AT: usize = 8;
const CRC_AT: usize = 16;
/// Behind the session of a claim.
const TICKET_AT: usize = HEADER_BYTES + 12;
/// Where the text of an acquire's key begins: behind claim, class, mode,
/// what a death does, wait and the text's length.
const KEY_AT: usize = HEADER_BYTES + 20 + 1 + 1 + 1 + 1 + 2;
/// Where the number of a key begins in its name, and how many digits it has.
const NUMBER_AT: usize = 15;
const NUMBER_DIGITS: usize = 8;

/// Makes the checksum of a whole frame anew.
pub(crate) fn seal(frame: &mut [u8]) {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame[..CRC_AT]);
    crc.update(&frame[HEADER_BYTES..]);
    frame[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.finalize().to_le_bytes());
}

/// Writes the id of a request; [`seal`] has to follow.
pub(crate) fn set_id(frame: &mut [u8], id: u64) {
    frame[ID_AT..ID_AT + 8].copy_from_slice(&id.to_le_bytes());
}

/// A frame of this kind and length whose body is zeros; [`seal`] has to follow.
pub(crate) fn blank(kind: Kind, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    frame[4..6].copy_from_slice(&kind.number().to_le_bytes());
    frame
}

/// How the keys of a run are called: `bench-`, the run, the key's number, and padding.
#[derive(Clone, Debug)]
pub(crate) struct KeyNames {
    run: u32,
    bytes: usize,
}

impl KeyNames {
    /// Names of so many bytes, at least 23, that no other run uses.
    pub(crate) fn new(run: u32, bytes: usize) -> KeyNames {
        KeyNames { run, bytes }
    }

    /// The name of a key.
    pub(crate) fn name(&self, number: u32) -> Result<Key, BenchError> {
        let name = format!("bench-{:08x}-{number:08x}", self.run);
        let padding = "x".repeat(self.bytes.saturating_sub(name.len()));
        Key::new(&format!("{name}{padding}")).map_err(|e| BenchError::Protocol(e.to_string()))
    }
}

/// An acquire, for any ticket and any key of the run.
pub(crate) fn acquire(id: u64, session: SessionId, key: &Key, wait: Wait) -> Box<[u8]> {
    frame(
        id,
        &Request::Acquire {
            session,
            ticket: Ticket(0),
            key: key.clone(),
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            wait,
            on_death: OnDeath::Release,
        },
    )
}

/// Any request, as it is.
pub(crate) fn frame(id: u64, request: &Request) -> Box<[u8]> {
    let mut bytes = Vec::new();
    request.encode(RequestId(id), &mut bytes);
    bytes.into_boxed_slice()
}

/// Writes ticket and key of an acquire.
pub(crate) fn fill_acquire(frame: &mut [u8], ticket: u64, key: u32) {
    frame[TICKET_AT..TICKET_AT + 8].copy_from_slice(&ticket.to_le_bytes());
    let digits = &mut frame[KEY_AT + NUMBER_AT..KEY_AT + NUMBER_AT + NUMBER_DIGITS];
    for (n, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(key >> (28 - 4 * n) & 15) as usize];
    }
    seal(frame);
}

/// Writes the ticket of a release.
pub(crate) fn fill_release(frame: &mut [u8], ticket: u64) {
    frame[TICKET_AT..TICKET_AT + 8].copy_from_slice(&ticket.to_le_bytes());
    seal(frame);
}

/// The key an acquire names.
pub(crate) fn key_of(acquire: &[u8], bytes: usize) -> &[u8] {
    &acquire[KEY_AT..KEY_AT + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{LogIndex, ShardId};
    use palisade_wire::Frames;

    const SESSION: SessionId = SessionId { shard: ShardId(3), opened: LogIndex(77) };

    fn decode(bytes: &[u8]) -> (u64, Request) {
        let frame = Frames::new(bytes).next_frame().unwrap().unwrap();
        (frame.id.0, Request::decode(&frame).unwrap())
    }

    #[test]
    fn a_filled_acquire_is_the_one_that_was_meant() {
        for bytes in [23, 24, 100, 512] {
            let names = KeyNames::new(0xdead_beef, bytes);
            let mut frame = acquire(42, SESSION, &names.name(0).unwrap(), Wait::Forever);
            for (ticket, number) in [(1, 0), (2, 0x1234_abcd), (u64::MAX, u32::MAX)] {
                fill_acquire(&mut frame, ticket, number);
                let key = names.name(number).unwrap();
                assert_eq!((key.len(), key_of(&frame, bytes)), (bytes, key.as_bytes()));
                let request = Request::Acquire {
                    session: SESSION,
                    ticket: Ticket(ticket),
                    key,
                    class: Class::Advisory,
                    resource: None,
                    mode: Mode::Exclusive,
                    wait: Wait::Forever,
                    on_death: OnDeath::Release,
                };
                assert_eq!(decode(&frame), (42, request));
            }
        }
    }

    #[test]
    fn a_filled_release_is_the_one_that_was_meant() {
        let mut form = frame(7, &Request::Release { session: SESSION, ticket: Ticket(0) });
        fill_release(&mut form, 99);
        assert_eq!(decode(&form), (7, Request::Release { session: SESSION, ticket: Ticket(99) }));
    }

    #[test]
    fn an_id_can_be_written_anew() {
        let mut form = frame(7, &Request::CloseSession { session: SESSION });
        set_id(&mut form, 1 << 40);
        seal(&mut form);
        assert_eq!(decode(&form), (1 << 40, Request::CloseSession { session: SESSION }));
    }
}
