//! Bytes that are not what they should be: refused with a reason, never a panic.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod samples;

use bytes::BytesMut;
use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::signature::SIGNATURE_BYTES;
use palisade_types::{
    Class, ClusterId, DecodeError, Epoch, HolderInfo, LockRow, LogIndex, Mode, Name, NameError, NodeId,
    Refusal, Reply, RequestId, SessionId, Standing, Ticket, Value,
};
use palisade_wire::{
    ADDRESS_BYTES_MAX, BODY_BYTES_MAX, CREDENTIALS_BYTES_MAX, ClientHello, Frame, FrameError, Frames,
    HEADER_BYTES, Kind, MEMBERS_MAX, Member, MessageError, RENEW_SESSIONS_MAX, REQUEST_BODY_BYTES_MAX,
    Request, ServerHello, TEXT_BYTES_MAX, Wait, common_version, decode_reply, encode_peer, encode_reply,
    take_frame,
};
use samples::{Message, all, only_frame};

fn header(length: u32, kind: u16, flags: u16) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes
}

/// Hellos, which may grow in later versions.
fn grows(message: &Message) -> bool {
    matches!(
        message,
        Message::ClientHello(_)
            | Message::ServerHello(_)
            | Message::PeerHello(_)
            | Message::HelloRefused(_)
            | Message::ProtocolError(_)
    )
}

#[test]
fn frames_come_out_whole_wherever_the_stream_is_cut() {
    let messages = all();
    let mut stream = Vec::new();
    messages.iter().for_each(|(_, message)| stream.extend_from_slice(&message.encode()));
    for piece in [1, 7, 64, 1000, stream.len()] {
        let (mut rest, mut shared, mut seen) = (Vec::new(), BytesMut::new(), 0);
        for chunk in stream.chunks(piece) {
            rest.extend_from_slice(chunk);
            shared.extend_from_slice(chunk);
            let mut frames = Frames::new(&rest);
            while let Some(frame) = frames.next_frame().unwrap() {
                assert_eq!(Message::decode(&frame).unwrap(), messages[seen].1);
                let owned = take_frame(&mut shared).unwrap().expect("both readers agree");
                assert_eq!(owned.as_frame(), frame);
                seen += 1;
            }
            assert_eq!(take_frame(&mut shared), Ok(None));
            let consumed = frames.consumed();
            rest.drain(..consumed);
        }
        assert_eq!((seen, rest.len(), shared.len()), (messages.len(), 0, 0));
    }
}

#[test]
fn the_beginning_of_a_frame_is_no_frame() {
    for (name, message) in all() {
        let bytes = message.encode();
        for cut in 0..bytes.len() {
            assert_eq!(Frames::new(&bytes[..cut]).next_frame(), Ok(None), "{name} cut at {cut}");
        }
    }
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    for (name, message) in all() {
        let bytes = message.encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Frames::new(&flipped).next_frame();
            assert!(!matches!(read, Ok(Some(_))), "{name}, bit {bit}: {read:?}");
        }
    }
}

/// Where the body ends in version 1 of the protocol, or without the signature that it carries.
fn earlier_end(message: &Message, body: &[u8]) -> Option<usize> {
    match message {
        Message::SignedReply(..) | Message::SignedPush(..) => Some(body.len() - SIGNATURE_BYTES),
        Message::Reply(_, Reply::Status(_)) => Some(body.len() - 17),
        _ => None,
    }
}

#[test]
fn a_damaged_body_under_a_good_checksum_does_not_panic_and_says_what_it_says() {
    for (_, message) in all() {
        let bytes = message.encode();
        let frame = only_frame(&bytes);
        for cut in 0..frame.body.len() {
            let short = Frame { body: &frame.body[..cut], ..frame };
            let read = Message::decode(&short);
            let peer = matches!(message, Message::Peer(_));
            // Those of the first versions end earlier.
            let early = matches!(&read, Ok(Message::PeerHello(h)) if h.starts.nonces.is_empty() && h.known.is_empty());
            let fits = peer || early || Some(cut) == earlier_end(&message, frame.body);
            assert!(fits != read.is_err(), "{:?} cut at {cut}: {read:?}", frame.kind);
        }
        for bit in 0..frame.body.len() * 8 {
            let mut body = frame.body.to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            let Ok(read) = Message::decode(&Frame { body: &body, ..frame }) else { continue };
            let again = read.encode();
            // A hello may have fields of a later version behind those known.
            let known = if grows(&message) { &body[..again.len() - HEADER_BYTES] } else { &body };
            assert_eq!(only_frame(&again).body, known, "{:?}, bit {bit}", frame.kind);
        }
    }
}

#[test]
fn a_body_with_something_behind_it_is_refused() {
    for (name, message) in all() {
        if grows(&message) || matches!(message, Message::Peer(_)) {
            continue;
        }
        let bytes = message.encode();
        let frame = only_frame(&bytes);
        let mut body = frame.body.to_vec();
        body.push(0);
        let read = Message::decode(&Frame { body: &body, ..frame });
        let refused = matches!(read, Err(MessageError::Body { error: DecodeError::Trailing(1), .. }));
        assert!(refused, "{name}: {read:?}");
    }
}

#[test]
fn a_frame_that_cannot_be_accepted_is_refused_on_its_first_bytes() {
    fn first(bytes: &[u8]) -> Result<Option<Frame<'_>>, FrameError> {
        Frames::new(bytes).next_frame()
    }
    assert_eq!(first(&header(40, 0x0999, 0)), Err(FrameError::UnknownKind(0x0999)));
    assert_eq!(first(&header(40, 0, 0)), Err(FrameError::UnknownKind(0)));
    assert_eq!(first(&header(40, 0x0110, 1)), Err(FrameError::UnknownFlags(1)));
    assert_eq!(first(&header(19, 0x0110, 0)), Err(FrameError::TooShort { length: 19 }));
    for (kind, body) in [(Kind::Acquire, REQUEST_BODY_BYTES_MAX), (Kind::Peer, BODY_BYTES_MAX)] {
        let max = HEADER_BYTES + body;
        assert_eq!(first(&header(max as u32, kind.number(), 0)), Ok(None));
        for length in [max as u32 + 1, u32::MAX] {
            let error = FrameError::TooLong { kind, length, max };
            assert_eq!(first(&header(length, kind.number(), 0)), Err(error));
        }
    }
}

#[test]
fn the_largest_peer_frame_fits_and_one_byte_more_is_a_bug() {
    let body = vec![7; BODY_BYTES_MAX - 1];
    let mut out = Vec::new();
    encode_peer(&mut out, &[&body, &[1]]);
    assert_eq!(out.len(), 1 << 20);
    assert_eq!(only_frame(&out).body.len(), BODY_BYTES_MAX);
    let too_long = std::panic::catch_unwind(|| encode_peer(&mut Vec::new(), &[&[7; BODY_BYTES_MAX], &[1]]));
    assert!(too_long.is_err());
}

#[test]
fn a_message_in_the_wrong_place_is_unexpected() {
    let bytes = Message::Request(RequestId(1), Request::Status).encode();
    let frame = only_frame(&bytes);
    assert_eq!(decode_reply(&frame), Err(MessageError::Unexpected { found: Kind::Status }));
    let mut out = Vec::new();
    encode_reply(&Reply::Renewed { refused: vec![] }, RequestId(1), &mut out);
    let unexpected = MessageError::Unexpected { found: Kind::Renewed };
    assert_eq!(Request::decode(&only_frame(&out)), Err(unexpected));
}

#[test]
fn a_bad_name_in_a_request_is_told_from_a_broken_connection() {
    let body = [1, 3, 0, b'a', 7, b'b'];
    let frame = Frame { kind: Kind::Describe, id: RequestId(1), body: &body };
    let error = DecodeError::Name(NameError::Control);
    assert_eq!(Request::decode(&frame), Err(MessageError::Body { kind: Kind::Describe, error }));
}

#[test]
fn a_read_of_no_known_consistency_is_refused_rather_than_answered_somehow() {
    for number in [0, 4, 255] {
        let body = [number, 1, 0, b'a'];
        let frame = Frame { kind: Kind::Describe, id: RequestId(1), body: &body };
        let error = DecodeError::Unknown { what: "consistency", value: u64::from(number) };
        assert_eq!(Request::decode(&frame), Err(MessageError::Body { kind: Kind::Describe, error }));
    }
}

#[test]
fn a_renewal_names_a_bounded_number_of_sessions() {
    let most = Request::Renew { sessions: vec![SessionId::default(); RENEW_SESSIONS_MAX] };
    let bytes = Message::Request(RequestId(1), most.clone()).encode();
    assert_eq!(Request::decode(&only_frame(&bytes)), Ok(most));
    let mut body = (RENEW_SESSIONS_MAX as u32 + 1).to_le_bytes().to_vec();
    body.resize(body.len() + 12 * (RENEW_SESSIONS_MAX + 1), 0);
    let frame = Frame { kind: Kind::Renew, id: RequestId(1), body: &body };
    let Err(MessageError::Body { error: DecodeError::TooLong { .. }, .. }) = Request::decode(&frame) else {
        panic!("accepted");
    };
}

#[test]
fn a_value_is_as_long_as_it_may_be_and_not_a_byte_longer() {
    let (session, ticket) = (SessionId::default(), Ticket(1));
    let requests = |bytes: usize| {
        let (key, value): (_, Value) = (Name::new(&"k".repeat(512)).unwrap(), vec![7; bytes].into());
        [
            Request::Put { session, ticket, key: key.clone(), value: value.clone() },
            Request::Campaign { session, ticket, key, value: value.clone(), wait: Wait::No },
            Request::Proclaim { session, ticket, leads: ticket, value },
        ]
    };
    let read = |request: &Request| {
        let mut bytes = Vec::new();
        request.encode(RequestId(1), &mut bytes);
        Request::decode(&only_frame(&bytes))
    };
    for request in requests(VALUE_BYTES_MAX) {
        assert_eq!(read(&request), Ok(request));
    }
    for request in requests(VALUE_BYTES_MAX + 1) {
        let Err(MessageError::Body { error: DecodeError::TooLong { max, .. }, .. }) = read(&request) else {
            panic!("accepted");
        };
        assert_eq!(max, VALUE_BYTES_MAX);
    }
}

#[test]
fn what_a_hello_carries_is_bounded() {
    let hello =
        |bytes| ClientHello { version_min: 1, version_max: 1, cluster: None, credentials: vec![7; bytes] };
    let read = |hello: &ClientHello| {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        ClientHello::decode(&only_frame(&bytes))
    };
    let most = hello(CREDENTIALS_BYTES_MAX);
    assert_eq!(read(&most), Ok(most));
    let too_long = |max: usize, error: MessageError| match error {
        MessageError::Body { error: DecodeError::TooLong { max: told, .. }, .. } => assert_eq!(told, max),
        other => panic!("{other:?}"),
    };
    too_long(CREDENTIALS_BYTES_MAX, read(&hello(CREDENTIALS_BYTES_MAX + 1)).unwrap_err());

    let server = |members: usize, address: usize| ServerHello {
        version: 1,
        node: NodeId(1),
        cluster: ClusterId(7),
        shards: 1,
        leader: None,
        members: vec![Member { node: NodeId(1), address: "a".repeat(address) }; members],
        frame_bytes_max: 1 << 20,
        inflight_max: 1_000,
        election_timeout_ms: 1_000,
    };
    let mut bytes = Vec::new();
    let most = server(MEMBERS_MAX, ADDRESS_BYTES_MAX);
    most.encode(&mut bytes);
    assert_eq!(ServerHello::decode(&only_frame(&bytes)), Ok(most));
    // As a stranger would write it: one number in the body is larger by one.
    let one_more = |bytes: &[u8], from_the_end: usize, number: usize| {
        let mut body = only_frame(bytes).body.to_vec();
        let at = body.len() - from_the_end;
        assert_eq!(body[at..at + 2], (number as u16).to_le_bytes());
        body[at..at + 2].copy_from_slice(&(number as u16 + 1).to_le_bytes());
        body.push(b'a');
        let frame = Frame { kind: Kind::ServerHello, id: RequestId(0), body: &body };
        ServerHello::decode(&frame).unwrap_err()
    };
    let member = 4 + 2 + ADDRESS_BYTES_MAX;
    too_long(MEMBERS_MAX, one_more(&bytes, MEMBERS_MAX * member + 2, MEMBERS_MAX));
    too_long(ADDRESS_BYTES_MAX, one_more(&bytes, ADDRESS_BYTES_MAX + 2, ADDRESS_BYTES_MAX));
}

#[test]
fn a_page_that_does_not_fit_a_frame_ends_early_and_says_so() {
    let long = Name::new(&"k".repeat(512)).unwrap();
    let holder = HolderInfo {
        session: SessionId::default(),
        owner: Some(long.clone()),
        epoch: Epoch(1),
        held_ms: 1,
        incarnation: None,
        mode: Mode::Exclusive,
        standing: Standing::Live,
    };
    let row = LockRow {
        key: long,
        class: Class::Advisory,
        epoch: Epoch(1),
        holding: 1,
        holder: Some(holder),
        waiting: 0,
    };
    let read = ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(1) };
    let mut out = Vec::new();
    encode_reply(&Reply::Locks { read, rows: vec![row.clone(); 1000], more: false }, RequestId(1), &mut out);
    assert!(out.len() <= 1 << 20);
    let Ok(Reply::Locks { rows, more: true, .. }) = decode_reply(&only_frame(&out)) else {
        panic!("the page does not say that there is more");
    };
    assert!(rows.len() > 900 && rows.iter().all(|r| *r == row));
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut out = Vec::new();
    let reason = "é".repeat(TEXT_BYTES_MAX);
    encode_reply(&Reply::Refused(Refusal::BadRequest { reason }), RequestId(1), &mut out);
    let Ok(Reply::Refused(Refusal::BadRequest { reason })) = decode_reply(&only_frame(&out)) else {
        panic!("unreadable");
    };
    assert_eq!(reason, "é".repeat(TEXT_BYTES_MAX / 2));
}

#[test]
fn the_newest_common_version_is_spoken() {
    assert_eq!(common_version(1, 1), Some(1));
    assert_eq!(common_version(0, 9), Some(2));
    assert_eq!(common_version(2, 9), Some(2));
    assert_eq!(common_version(3, 9), None);
    assert_eq!(common_version(0, 0), None);
    assert_eq!(common_version(5, 1), None);
}
