//! The bytes of a log to a slave's socket: a vectored write from the mapped file, as a master does it, beside the frame's head
//! and `sendfile`. In wall time, and in processor time of the sending thread. The file is in the page cache; "old" files are
//! mapped anew, as those that a slave needs which was away for long.

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rocketpy_env::{Disk, RealDisk, Region};
use rustix::fs::{Mode, OFlags, open, sendfile};
use rustix::time::{ClockId, clock_gettime};

const FILE_BYTES: u64 = 256 << 20;
const HEAD: [u8; 12] = [7; 12];

/// Sends the whole file in frames with bodies of the given size.
type Run<'a> = &'a dyn Fn(&mut TcpStream, u64);

/// Sends the whole file in frames with bodies of this size.
fn vectored(socket: &mut TcpStream, region: &impl Region, frame: u64) {
    for at in (0..FILE_BYTES).step_by(frame as usize) {
        let body = region.slice(at..at + frame);
        let mut parts = [IoSlice::new(&HEAD), IoSlice::new(&body)];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            let written = socket.write_vectored(parts).unwrap();
            IoSlice::advance_slices(&mut parts, written);
        }
    }
}

fn by_sendfile(socket: &mut TcpStream, file: &OwnedFd, frame: u64) {
    for at in (0..FILE_BYTES).step_by(frame as usize) {
        socket.write_all(&HEAD).unwrap();
        let mut offset = at;
        while offset < at + frame {
            let left = (at + frame - offset) as usize;
            sendfile(&*socket, file, Some(&mut offset), left).unwrap();
        }
    }
}

/// Takes what comes, in pieces as a slave's, and throws it away.
fn take(mut socket: TcpStream) {
    let mut buffer = vec![0; 1 << 20];
    while socket.read(&mut buffer).unwrap() > 0 {}
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn send(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let region = RealDisk.create_region(&path, FILE_BYTES).unwrap();
    let bytes = vec![7; 1 << 20];
    (0..FILE_BYTES >> 20).for_each(|_| region.append(&bytes, 1 << 20));
    let file = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap(); // the baseline's own way to the bytes
    let runs: [(&str, Run<'_>); 3] = [
        ("vectored write", &|socket, frame| vectored(socket, &region, frame)),
        ("vectored write, old", &|socket, frame| {
            vectored(socket, &RealDisk.open_region(&path).unwrap(), frame);
        }),
        ("sendfile", &|socket, frame| by_sendfile(socket, &file, frame)),
    ];
    for frame in [32 << 10, 256 << 10, 1 << 20] {
        for clock in ["wall", "sender"] {
            let mut group =
                criterion.benchmark_group(format!("to a slave, frames of {} KiB, {clock}", frame >> 10));
            group.sample_size(10).throughput(Throughput::Bytes(FILE_BYTES));
            for (name, run) in runs {
                group.bench_function(name, |bencher| {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let (taken, _) = listener.accept().unwrap();
                    let taker = std::thread::spawn(move || take(taken));
                    bencher.iter_custom(|runs| {
                        let (began, before) = (Instant::now(), processor_time());
                        (0..runs).for_each(|_| run(&mut socket, frame));
                        if clock == "wall" { began.elapsed() } else { processor_time() - before }
                    });
                    drop(socket);
                    taker.join().unwrap();
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, send);
criterion_main!(benches);
