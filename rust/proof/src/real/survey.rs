//! What must hold right after a start: everything is there and is found, and groups continue where they may.

use std::collections::BTreeMap;

use fastrand::Rng;
use rocketpy_client::{Admin, Client, ClientError, RangeReader, TopicSpec};
use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::TopicConfigSerializeWrapper;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::QueryMessageRequestHeader;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::{RecordView, records};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting as remoting;

use super::load::{GROUPS, LASTING, Load};
use super::message::{delivery, key_of, queue_name};
use super::shape::Shape;
use super::{later, topic};
use crate::checker::Rule;
use crate::history::{Call, Delivery, Event, Look, QueueName, Reply};

/// Messages that are looked up after a start, each in three ways.
const LOOK_UPS: usize = 8;
/// Most messages of one look-up: more than share a key.
const MOST_FOUND: i32 = 32;
const LOOK_UP_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// A message as the audit found it.
struct Present {
    delivery: Delivery,
    unique_key: String,
}

/// A server right after its start.
pub(super) struct Survey<'a> {
    pub load: &'a Load,
    pub client: &'a Client,
    pub broker: &'a str,
    pub shape: &'a Shape,
}

impl Survey<'_> {
    /// Reads and looks up; then makes the topics that are missing.
    ///
    /// # Errors
    /// What the server did not answer.
    pub(super) async fn run(&self, rng: &mut Rng) -> Result<(), ClientError> {
        let (present, ends) = self.read_all().await?;
        let deliveries: Vec<Delivery> = present.iter().map(|present| present.delivery.clone()).collect();
        self.note_found(deliveries, ends);
        self.check_positions().await?;
        self.check_topics().await?;
        for _ in 0..LOOK_UPS.min(present.len()) {
            self.look_up(&present[rng.usize(..present.len())]).await?;
        }
        if self.shape.has_later {
            later::read(self.load, self.client).await?;
        }
        let admin = Admin::new(self.client);
        for (topic, attributes) in self.load.topics.iter().zip(&self.shape.topics) {
            let attributes = attributes.clone();
            let spec = TopicSpec { attributes, ..TopicSpec::new(topic, self.shape.queues) };
            topic::create(&admin, &spec).await?;
            self.load.metadata.lock().there.insert(topic.clone());
        }
        Ok(())
    }

    /// Notes what is there, and what retention may have removed of all that was in the log by now.
    fn note_found(&self, deliveries: Vec<Delivery>, ends: Vec<(QueueName, u64)>) {
        let found_to = deliveries.iter().filter_map(|delivery| delivery.log).map(|log| log.end).max();
        let Shape { retention, log_file, .. } = *self.shape;
        let mut journal = self.load.journal.lock();
        journal.kept.found_to = found_to.unwrap_or(0);
        // Records that were appended without an answer may have been there too.
        let end = journal.kept.log_end.max(journal.kept.found_to) + self.shape.at_once_bytes();
        journal.kept.may_start = retention.start(end, log_file).max(journal.kept.may_start);
        journal.kept.log_end = journal.kept.found_to; // a power cut may have made the log shorter
        if journal.kept.may_start > 0 {
            let before = journal.kept.may_start;
            journal.push(Event::Expired { topic: None, queue_id: None, before });
        }
        journal.done(Call::Audit, Reply::Audited { deliveries, ends });
    }

    /// All messages, and where the queues end.
    async fn read_all(&self) -> Result<(Vec<Present>, Vec<(QueueName, u64)>), ClientError> {
        let admin = Admin::new(self.client);
        let (mut present, mut ends) = (Vec::new(), Vec::new());
        for topic in self.load.topics.iter() {
            let queues = match admin.queues(topic).await {
                Err(ClientError::NoRoute { .. }) => continue, // it has no messages: the checker judges that
                queues => queues?,
            };
            for queue in queues {
                let (start, end) = (admin.min_offset(&queue).await?, admin.max_offset(&queue).await?);
                ends.push((queue_name(&queue), end.get()));
                let mut reader = RangeReader::new(self.client, queue, start, end, "*").await?;
                while let Some(part) = reader.next().await? {
                    present.extend(part.iter().map(|view| Present {
                        delivery: delivery(&view),
                        unique_key: view.unique_key().unwrap_or_default().to_owned(),
                    }));
                }
            }
        }
        Ok((present, ends))
    }

    async fn check_positions(&self) -> Result<(), ClientError> {
        let admin = Admin::new(self.client);
        for topic in self.load.topics.iter() {
            let queues = match admin.queues(topic).await {
                Err(ClientError::NoRoute { .. }) => continue,
                queues => queues?,
            };
            for queue in queues {
                for group in GROUPS.map(|(group, _)| group).into_iter().chain([LASTING]) {
                    if let Some(offset) = admin.committed_offset(group, &queue).await? {
                        let (group, queue) = (group.to_owned(), queue_name(&queue));
                        let positioned =
                            Event::Positioned { group, queue, offset: offset.get(), member: None };
                        self.load.journal.lock().push(positioned);
                    }
                }
            }
        }
        Ok(())
    }

    /// Topics whose creation was acknowledged are there, with their attributes; those whose deletion was are not.
    async fn check_topics(&self) -> Result<(), ClientError> {
        let admin = Admin::new(self.client);
        let topics = admin.topics().await?;
        for (topic, made_with) in self.load.topics.iter().zip(&self.shape.topics) {
            let is_made = self.load.metadata.lock().there.contains(topic) && topics.contains(topic);
            if made_with.is_empty() || !is_made {
                continue;
            }
            let brokers = admin.describe_topic(topic).await?.brokers;
            let is_set = |(name, value): (&String, &Option<String>)| {
                brokers.iter().all(|broker| broker.attributes.get(name) == value.as_ref())
            };
            if !made_with.iter().all(is_set) {
                let text = format!("topic {topic} was made with {made_with:?}, and now is {brokers:?}");
                self.load.journal.lock().wrong(Rule::R9, text);
            }
        }
        let of_broker = self.topics_of_broker().await?;
        let metadata = self.load.metadata.lock();
        let mut journal = self.load.journal.lock();
        for lost in metadata.there.iter().filter(|name| !topics.contains(name)) {
            journal.wrong(Rule::R9, format!("topic {lost} was made, and is gone"));
        }
        for back in metadata.gone.iter().filter(|name| of_broker.contains_key(*name)) {
            journal.wrong(Rule::R9, format!("topic {back} was deleted, and is there"));
        }
        Ok(())
    }

    /// The topics of the broker. A name server may also know those that a slave of it has not removed yet.
    async fn topics_of_broker(&self) -> Result<BTreeMap<String, TopicConfig>, ClientError> {
        let caller = remoting::Client::new(remoting::ClientConfig::default());
        let asked = Command::bare_request(request::GET_ALL_TOPIC_CONFIG);
        let bad = |reason: String| self.bad_answer("topic list", reason);
        let answer = caller.call(self.broker, asked, LOOK_UP_WITHIN).await;
        let answer = answer.map_err(|error| bad(error.to_string()))?;
        let table = json::from_slice::<TopicConfigSerializeWrapper>(&answer.body);
        Ok(table.map_err(|error| bad(error.to_string()))?.topic_config_table)
    }

    fn bad_answer(&self, operation: &'static str, reason: String) -> ClientError {
        let address = self.broker.to_owned();
        ClientError::BadAnswer { operation, address, reason, may_have_been_applied: false }
    }

    async fn look_up(&self, present: &Present) -> Result<(), ClientError> {
        let (message, topic) = (present.delivery.message, &present.delivery.queue.topic);
        let key = key_of(message);
        let of_key = Look::Key { topic: topic.clone(), key: key.clone() };
        let by_id = self.by_offset_id(&present.delivery).await?;
        let by_unique_key = self.by_key(topic, &present.unique_key, true).await?;
        let by_key = self.by_key(topic, &key, false).await?;
        let mut journal = self.load.journal.lock();
        journal.done(Call::Find { by: Look::Id { message } }, Reply::Found { messages: by_id });
        journal.done(Call::Find { by: Look::Id { message } }, Reply::Found { messages: by_unique_key });
        journal.done(Call::Find { by: of_key }, Reply::Found { messages: by_key });
        Ok(())
    }

    /// Looks up by the place in the log: an old id has the address of a process that has ended.
    async fn by_offset_id(&self, delivery: &Delivery) -> Result<Vec<u64>, ClientError> {
        let (Ok(host), Some(log)) = (self.broker.parse(), delivery.log) else { return Ok(Vec::new()) };
        let mut id = String::new();
        OffsetMessageId { host, physical_offset: log.start.into() }.write(&mut id);
        match Admin::new(self.client).view_message(&id).await {
            Ok(record) => Ok(RecordView::parse(&record).iter().map(number).collect()),
            Err(ClientError::Refused { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn by_key(&self, topic: &str, key: &str, is_unique: bool) -> Result<Vec<u64>, ClientError> {
        let header = QueryMessageRequestHeader {
            topic,
            key,
            max_num: MOST_FOUND,
            begin_timestamp: 0,
            end_timestamp: i64::MAX,
            index_type: None,
            last_key: None,
            is_unique_key: is_unique.then_some(true),
        };
        let caller = remoting::Client::new(remoting::ClientConfig::default());
        let command = Command::request(request::QUERY_MESSAGE, &header);
        let answer = caller.call(self.broker, command, LOOK_UP_WITHIN).await;
        let lost = |reason: String| self.bad_answer("message query", reason);
        let answer = answer.map_err(|error| lost(error.to_string()))?;
        match answer.code {
            response::SUCCESS => {
                let views = records(&answer.body).map(|view| view.map(|view| number(&view)));
                views.collect::<Result<_, _>>().map_err(|error| lost(error.to_string()))
            }
            response::QUERY_NOT_FOUND => Ok(Vec::new()),
            code => Err(lost(format!("{code}: {}", answer.remark.unwrap_or_default()))),
        }
    }
}

fn number(view: &RecordView<'_>) -> u64 {
    delivery(view).message
}
