//! Sends and their answers.

use super::{Header, HeaderError};
use crate::{Command, ExtFields, code};

/// Makes the two forms of the send header from one list: names (codes 10 and 324) and letters (310, 320 and 325).
macro_rules! send_header {
    ($($(#[$field_doc:meta])* $field:ident: $type:ty = $name:literal / $letter:literal,)*) => {
        /// The header of a send: SEND_MESSAGE with full names, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE with letters.
        ///
        /// As a [`Header`] it has the full names; [`SendMessageRequestHeaderV2`] has the letters, and
        /// [`SendMessageRequestHeader::of`] chooses by request code.
        ///
        /// # Source
        /// docs/reference/protocol.md 2.3.1.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct SendMessageRequestHeader<'a> {
            $($(#[$field_doc])* #[doc = concat!("On the wire: `", $name, "`, or `", $letter, "`.")] pub $field: $type,)*
        }

        impl<'a> Header<'a> for SendMessageRequestHeader<'a> {
            header!(@methods 'a { $($field = $name,)* });
        }

        impl<'a> SendMessageRequestHeader<'a> {
            fn read_letters(fields: &'a ExtFields) -> Result<Self, HeaderError> {
                header!(@read fields { $($field = $letter,)* })
            }

            fn write_letters(&self, fields: &mut ExtFields) {
                header!(@reserve fields $($letter)*);
                $($crate::header::Field::write(&self.$field, $letter, fields);)*
            }
        }
    };
}

send_header! {
    producer_group: &'a str = "producerGroup" / "a",
    topic: &'a str = "topic" / "b",
    /// The template from which a missing topic is made.
    default_topic: &'a str = "defaultTopic" / "c",
    default_topic_queue_nums: i32 = "defaultTopicQueueNums" / "d",
    /// Negative: the broker chooses.
    queue_id: i32 = "queueId" / "e",
    sys_flag: i32 = "sysFlag" / "f",
    born_timestamp: i64 = "bornTimestamp" / "g",
    flag: i32 = "flag" / "h",
    /// The properties as text ([`crate::properties_text`]).
    properties: Option<&'a str> = "properties" / "i",
    reconsume_times: Option<i32> = "reconsumeTimes" / "j",
    unit_mode: Option<bool> = "unitMode" / "k",
    max_reconsume_times: Option<i32> = "maxReconsumeTimes" / "l",
    /// The body is a batch ([`crate::batch`]), under any request code.
    batch: Option<bool> = "batch" / "m",
    broker_name: Option<&'a str> = "bname" / "n",
}

impl<'a> SendMessageRequestHeader<'a> {
    /// Reads the header of any send request, in the form that its code asks for.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn of(command: &'a Command) -> Result<Self, HeaderError> {
        match command.code {
            code::request::SEND_MESSAGE | code::request::SEND_REPLY_MESSAGE => Self::read(&command.ext),
            _ => Self::read_letters(&command.ext),
        }
    }

    /// Says whether the body is a batch.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.batch.unwrap_or(false)
    }
}

/// [`SendMessageRequestHeader`] in its form with letters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SendMessageRequestHeaderV2<'a>(pub SendMessageRequestHeader<'a>);

impl<'a> Header<'a> for SendMessageRequestHeaderV2<'a> {
    fn read(fields: &'a ExtFields) -> Result<Self, HeaderError> {
        SendMessageRequestHeader::read_letters(fields).map(Self)
    }

    fn write(&self, fields: &mut ExtFields) {
        self.0.write_letters(fields);
    }
}

header! {
    /// The answer to a send that stored its message (codes 0, 10, 11 and 12).
    SendMessageResponseHeader<'a> {
        /// The offset message id; for a batch all of them with commas between.
        msg_id: &'a str = "msgId",
        queue_id: i32 = "queueId",
        /// Of a batch: the first one.
        queue_offset: i64 = "queueOffset",
        /// The message's unique key.
        transaction_id: Option<&'a str> = "transactionId",
        batch_uniq_id: Option<&'a str> = "batchUniqId",
        recall_handle: Option<&'a str> = "recallHandle",
        /// Region id; a broker always sends it.
        region: Option<&'a str> = "MSG_REGION",
        /// Trace switch; a broker always sends it.
        trace_on: Option<&'a str> = "TRACE_ON",
    }
}

header! {
    /// A message that could not be consumed goes back to the broker (code 36).
    ConsumerSendMsgBackRequestHeader<'a> {
        offset: i64 = "offset",
        group: &'a str = "group",
        delay_level: i32 = "delayLevel",
        origin_msg_id: Option<&'a str> = "originMsgId",
        origin_topic: Option<&'a str> = "originTopic",
        unit_mode: Option<bool> = "unitMode",
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// Commit or rollback of a half message (code 37).
    EndTransactionRequestHeader<'a> {
        topic: Option<&'a str> = "topic",
        producer_group: &'a str = "producerGroup",
        tran_state_table_offset: i64 = "tranStateTableOffset",
        commit_log_offset: i64 = "commitLogOffset",
        /// 8 commit, 12 rollback, 0 unknown.
        commit_or_rollback: i32 = "commitOrRollback",
        from_transaction_check: Option<bool> = "fromTransactionCheck",
        msg_id: &'a str = "msgId",
        transaction_id: Option<&'a str> = "transactionId",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The broker asks a producer for the state of a half message (code 39).
    CheckTransactionStateRequestHeader<'a> {
        topic: Option<&'a str> = "topic",
        tran_state_table_offset: i64 = "tranStateTableOffset",
        commit_log_offset: i64 = "commitLogOffset",
        msg_id: Option<&'a str> = "msgId",
        transaction_id: Option<&'a str> = "transactionId",
        offset_msg_id: Option<&'a str> = "offsetMsgId",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The broker hands a reply to the requester (code 326).
    ReplyMessageRequestHeader<'a> {
        producer_group: &'a str = "producerGroup",
        topic: &'a str = "topic",
        default_topic: &'a str = "defaultTopic",
        default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        queue_id: i32 = "queueId",
        sys_flag: i32 = "sysFlag",
        born_timestamp: i64 = "bornTimestamp",
        flag: i32 = "flag",
        properties: Option<&'a str> = "properties",
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        born_host: &'a str = "bornHost",
        store_host: &'a str = "storeHost",
        store_timestamp: i64 = "storeTimestamp",
    }
}

header! {
    /// Takes back a message that waits for its time (code 370).
    RecallMessageRequestHeader<'a> {
        producer_group: Option<&'a str> = "producerGroup",
        topic: &'a str = "topic",
        /// What the answer to the send said.
        recall_handle: &'a str = "recallHandle",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The answer: the message is delivered no more, unless it was already.
    RecallMessageResponseHeader<'a> {
        /// The message's unique key.
        msg_id: &'a str = "msgId",
    }
}
