//! Creation of a missing topic or group that a message needs.

use rocketpy_env::Disk;
use rocketpy_model::TopicConfig;

use super::{Intake, NewMessage, Origin, Stored, put};
use crate::blocking::on_disk;
use crate::refusal::Refusal;
use crate::registration::Announced;
use crate::table::topic::TopicChange;

/// Why a message was not put.
#[derive(Debug)]
pub(crate) enum NotPut {
    Refused(Refusal),
    /// Make it, and put the message again. Making it waits for the disk, which no put does.
    Missing(Missing),
}

/// A topic or a group that has to be made first.
#[derive(Debug)]
pub(crate) enum Missing {
    Topic(TopicConfig),
    Group(String),
}

impl From<Refusal> for NotPut {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Missing> for NotPut {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl Missing {
    /// Makes it and waits until it is on disk. Returns the announcement of a topic that this call made.
    ///
    /// # Errors
    /// The broker must not create it, or cannot write it.
    pub(crate) async fn make(self, intake: &Intake<impl Disk>) -> Result<Option<Announced>, Refusal> {
        match self {
            Self::Topic(topic) => {
                let changed = intake.ground().topics().create(vec![topic])?;
                on_disk(changed.written).await?;
                let change = TopicChange { topics: changed.values };
                Ok(if change.topics.is_empty() { None } else { intake.announce(&change) })
            }
            Self::Group(group) => {
                let found = intake.ground().group(&group)?;
                on_disk(found.written).await?;
                Ok(None)
            }
        }
    }
}

/// Stores a message or a batch, after everything that is missing for it was made.
///
/// # Errors
/// As [`put`]; a topic may have been made.
pub(crate) async fn put_and_make<'a>(
    intake: &Intake<impl Disk>,
    origin: Origin,
    message: &NewMessage<'a>,
) -> Result<Stored<'a>, Refusal> {
    let mut announced = None;
    loop {
        match put(intake, origin, message) {
            Ok(mut stored) => {
                stored.ack.announced = announced;
                return Ok(stored);
            }
            Err(NotPut::Refused(refusal)) => return Err(refusal),
            Err(NotPut::Missing(missing)) => {
                let made =
                    missing.make(intake).await.inspect_err(|_| intake.ground().metrics().put_failed())?;
                announced = made.or(announced);
            }
        }
    }
}
