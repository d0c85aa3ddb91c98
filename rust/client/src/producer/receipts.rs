//! From acknowledgements to receipts.

use rocketpy_model::{MessageQueue, QueueOffset};

use super::pack::KeyList;
use crate::receipt::{Receipt, SendStatus};
use crate::send_error::SendError;

/// The acknowledgement of a request.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) status: SendStatus,
    /// As the user knows it.
    pub(crate) queue: MessageQueue,
    /// Of the first message; those of the others follow it.
    pub(crate) queue_offset: QueueOffset,
    /// One for each message, separated by commas.
    pub(crate) offset_msg_ids: String,
    pub(crate) transaction_id: Option<String>,
    pub(crate) recall_handle: Option<String>,
}

/// The receipt of message `index` of a request.
pub(crate) fn receipt_of(stored: &Stored, keys: &KeyList, index: usize) -> Receipt {
    assert!(index < keys.len(), "each message of a stored request has its key: {index}");
    Receipt {
        status: stored.status,
        msg_id: keys.get(index).to_owned(),
        offset_msg_id: nth_id(&stored.offset_msg_ids, index).to_owned(),
        queue: stored.queue.clone(),
        queue_offset: stored.queue_offset + index as u64,
        transaction_id: stored.transaction_id.clone().filter(|_| keys.len() == 1),
        recall_handle: stored.recall_handle.clone().filter(|_| keys.len() == 1),
    }
}

/// What message `index` of a request ended with.
pub(crate) fn outcome_of(
    result: &Result<Stored, SendError>,
    keys: &KeyList,
    index: usize,
) -> Result<Receipt, SendError> {
    match result {
        Ok(stored) => Ok(receipt_of(stored, keys, index)),
        // A message that was not sent has a key only if its sender gave one.
        Err(error) if index < keys.len() && !keys.get(index).is_empty() => {
            Err(error.clone().of(keys.get(index)))
        }
        Err(error) => Err(error.clone()),
    }
}

/// One of several ids separated by commas. Ids of one broker have one length, so most are found without a search.
pub(crate) fn nth_id(ids: &str, index: usize) -> &str {
    let length = ids.find(',').unwrap_or(ids.len());
    let start = index * (length + 1);
    match ids.get(start..start + length) {
        Some(id) if !id.contains(',') && matches!(ids.as_bytes().get(start + length), None | Some(b',')) => {
            id
        }
        _ => ids.split(',').nth(index).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_index() {
        assert_eq!(nth_id("A1,B2,C3", 0), "A1");
        assert_eq!(nth_id("A1,B2,C3", 2), "C3");
        assert_eq!(nth_id("A1", 0), "A1");
        assert_eq!(nth_id("A1,B22,C3", 1), "B22", "of different lengths");
        assert_eq!(nth_id("A1,B22,C3", 2), "C3");
        assert_eq!(nth_id("A1,B2", 5), "");
        assert_eq!(nth_id("", 0), "");
    }
}
