//! The messages that carry a snapshot in pieces, each of them one of the engine's messages.
//!
//! ```text
//! piece    MsgSnapshot      snapshot: the metadata, and the bytes of the piece
//!                           context: | transfer (8) | number of the piece (8) | flags (8) |
//! reply    MsgSnapStatus    index: transfer; commit: the number of the piece that is wanted next;
//!                           reject: the transfer cannot go on
//! ```
//!
//! The engine uses `MsgSnapStatus` only within a process, so a replica that gets one knows that it is a reply.

use raft::prelude::{Message, MessageType};

/// The piece ends a unit: what one call of [`State::read`](crate::State::read) returned.
const ENDS_UNIT: u64 = 1;
/// The piece is the last one.
const LAST: u64 = 2;
/// In a reply: no further piece is wanted.
pub(crate) const DONE: u64 = u64::MAX;

/// The place of a piece in its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the transfer, which its leader does not use again in its term.
    pub(crate) transfer: u64,
    pub(crate) number: u64,
    pub(crate) ends_unit: bool,
    pub(crate) last: bool,
}

/// Returns the message of a piece; `head` is the engine's message.
pub(crate) fn message(head: &Message, place: Place, data: Vec<u8>) -> Message {
    let mut message = head.clone();
    let flags = u64::from(place.ends_unit) * ENDS_UNIT + u64::from(place.last) * LAST;
    let words = [place.transfer, place.number, flags];
    message.context = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into();
    message.mut_snapshot().data = data.into();
    message
}

/// Returns the place of a piece; `None`: the message is no piece.
pub(crate) fn place(message: &Message) -> Option<Place> {
    let (words, rest) = message.context.as_chunks();
    let [transfer, number, flags] = words else { return None };
    let [transfer, number, flags] = [transfer, number, flags].map(|word| u64::from_le_bytes(*word));
    let (ends_unit, last) = (flags & ENDS_UNIT != 0, flags & LAST != 0);
    rest.is_empty().then_some(Place { transfer, number, ends_unit, last })
}

/// Returns the engine's message, without a piece.
pub(crate) fn head(mut piece: Message) -> Message {
    piece.context = Vec::new().into();
    piece.mut_snapshot().data = Vec::new().into();
    piece
}

/// The answer to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is none.
    Silence,
    /// The number of the piece that is wanted next.
    Wanted(u64),
    /// The transfer cannot go on.
    Refused,
}

/// Returns the message of an answer to a piece.
pub(crate) fn reply(piece: &Message, place: Place, answer: Answer) -> Option<Message> {
    let wanted = match answer {
        Answer::Silence => return None,
        Answer::Wanted(number) => Some(number),
        Answer::Refused => None,
    };
    let mut reply = Message::default();
    reply.set_msg_type(MessageType::MsgSnapStatus);
    (reply.from, reply.to, reply.term) = (piece.to, piece.from, piece.term);
    (reply.index, reply.commit) = (place.transfer, wanted.unwrap_or(0));
    reply.reject = wanted.is_none();
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_message_and_other_messages_have_none() {
        let mut head = Message::default();
        head.set_msg_type(MessageType::MsgSnapshot);
        head.mut_snapshot().mut_metadata().index = 7;
        for (ends_unit, last) in [(false, false), (true, false), (true, true)] {
            let at = Place { transfer: 3, number: 1 << 40, ends_unit, last };
            let piece = message(&head, at, b"bytes".to_vec());
            let piece = crate::decode(&crate::encode(&piece)).expect("a message");
            assert_eq!(place(&piece), Some(at));
            assert_eq!(&piece.get_snapshot().data[..], b"bytes");
            assert_eq!(super::head(piece), head);
        }
        assert_eq!(place(&head), None);
        for len in [1, 8, 23, 25, 32] {
            head.context = vec![0; len].into();
            assert_eq!(place(&head), None);
        }
    }
}
