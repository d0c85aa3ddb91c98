//! Small stores, and a check of a folder that shares no code with the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, EntryKind, OpenMode, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, sys_flag};
