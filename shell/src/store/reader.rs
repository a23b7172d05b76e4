//! Answers reads of the log. Choosing happens under the index's lock in short slices, bodies are read from
//! the segments without it: however long a read, commits wait for less than a millisecond.

use super::files::File;
use super::index::select::{Pick, Slice, Wanted};
use super::record::{RECORD_HEADER, Record, body_of, claimed_len, decode};
use super::shared::{Event, ReadRequest, Shared};
use super::stats::add;
use mast_core::ids::TenantId;
use mast_core::message::Message;
use mast_core::store::port::{LogEntry, LogPage, LogRead, Read, ReadResult, Refusal};
use mast_core::store::position::Seq;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Steps of choosing per hold of the lock: 100 ns each, about.
const SLICE: u32 = 4096;
/// A read of a record fetches this much beside the body at first: room for names and a short spill list.
const MARGIN: usize = 256;
/// Neighbouring records are fetched together up to this many bytes.
const RUN_BYTES: usize = 256 << 10;
/// ... if no more than this lies between them.
const RUN_GAP: u64 = 16 << 10;

/// Answers one request, and delivers the answer.
pub fn serve(shared: &Shared, request: ReadRequest) {
    let ReadRequest { shard, op, read } = request;
    // The shard has been told of everything up to here; nothing later may show.
    let announced = shared.sink(shard).map_or(0, |state| state.announced);
    let result = match read {
        Read::Log(read) => log(shared, &read, announced),
        Read::At { seqs, .. } => at(shared, &seqs),
        Read::Bound { read, max_count, max_bytes } => bound(shared, &read, announced, max_count, max_bytes),
    };
    let result = result.unwrap_or_else(ReadResult::Failed);
    add(&shared.counters.reads, 1);
    shared.deliver(shard, vec![Event::ReadDone { op, result }]);
}

/// Calls `take` for each message that `read` wants up to `upto`, and returns where it stopped; `None` = at the end.
fn choose(
    shared: &Shared,
    read: &LogRead,
    upto: u64,
    take: &mut dyn FnMut(Pick) -> bool,
) -> Result<Option<u64>, Refusal> {
    let slot = shared.index().tenants.slot_of(read.tenant).ok_or(Refusal::Unavailable)?;
    let mut wanted = Wanted::new(slot, read);
    let mut from = Some(0);
    while let Some(i) = from {
        from = wanted.resolve(&shared.index(), read, i, SLICE as usize);
    }
    let mut after = read.after.0;
    loop {
        let index = shared.index();
        let mut on_pick = |seq: u64, place: &super::index::blocks::Place| {
            take(Pick { seq, place: *place, message: index.ring.get(seq) })
        };
        match wanted.slice(&index, after, upto, read.now, SLICE, &mut on_pick) {
            Slice::Exhausted => return Ok(None),
            Slice::Enough(seq) => return Ok(Some(seq)),
            Slice::Budget(seq) => after = seq,
        }
    }
}

fn log(shared: &Shared, read: &LogRead, announced: u64) -> Result<ReadResult, Refusal> {
    let mut picks: Vec<Pick> = Vec::new();
    let mut bytes = 0u64;
    let max_entries = read.max_entries.max(1) as usize;
    let mut take = |pick: Pick| {
        bytes += u64::from(pick.place.size);
        picks.push(pick);
        picks.len() < max_entries && bytes <= u64::from(read.max_bytes)
    };
    let stopped = choose(shared, read, announced, &mut take)?;
    let (entries, lost) = fetch(shared, picks, Some(read.tenant))?;
    let first = {
        let index = shared.index();
        index.tenants.slot_of(read.tenant).map_or(0, |slot| index.tenants.trimmed(slot) + 1)
    };
    // The caller may stand above what was announced: behind a commit without messages of its own.
    let upto = Seq(stopped.unwrap_or(announced).max(read.after.0));
    Ok(ReadResult::Page(LogPage { entries, lost, upto, first: Seq(first) }))
}

fn at(shared: &Shared, seqs: &[Seq]) -> Result<ReadResult, Refusal> {
    let mut picks = Vec::with_capacity(seqs.len());
    for some in seqs.chunks(SLICE as usize) {
        let index = shared.index();
        picks.extend(some.iter().filter_map(|seq| {
            let place = index.blocks.get(seq.0)?;
            Some(Pick { seq: seq.0, place, message: index.ring.get(seq.0) })
        }));
    }
    let (entries, lost) = fetch(shared, picks, None)?;
    let upto = seqs.last().copied().unwrap_or_default();
    Ok(ReadResult::Page(LogPage { entries, lost, upto, first: Seq(0) }))
}

fn bound(
    shared: &Shared,
    read: &LogRead,
    announced: u64,
    max_count: u64,
    max_bytes: u64,
) -> Result<ReadResult, Refusal> {
    let mut sizes: Vec<(u64, u32)> = Vec::new();
    let mut total = 0u64;
    let mut take = |pick: Pick| {
        total += u64::from(pick.place.size);
        sizes.push((pick.seq, pick.place.size));
        true
    };
    choose(shared, read, announced, &mut take)?;
    let mut left = sizes.len() as u64;
    let (mut floor, mut dropped, mut dropped_bytes) = (0, 0, 0);
    for (seq, size) in sizes {
        if left <= max_count && total <= max_bytes {
            break;
        }
        left -= 1;
        total -= u64::from(size);
        dropped += 1;
        dropped_bytes += u64::from(size);
        floor = seq;
    }
    let (kept, kept_bytes, upto) = (left, total, Seq(announced));
    Ok(ReadResult::Bound { floor: Seq(floor), dropped, dropped_bytes, kept, kept_bytes, upto })
}

/// Bodies loaded, and what turned out to be damaged.
#[derive(Default)]
struct Fetched {
    found: BTreeMap<u64, LogEntry>,
    lost: Vec<Seq>,
}

/// Loads the bodies of what was chosen, in its order. What was trimmed meanwhile is left out.
fn fetch(
    shared: &Shared,
    picks: Vec<Pick>,
    tenant: Option<TenantId>,
) -> Result<(Vec<LogEntry>, Vec<Seq>), Refusal> {
    let mut fetched = Fetched::default();
    let mut by_place: Vec<Pick> = Vec::new();
    for pick in picks {
        match pick.message {
            Some(message) => {
                let spilled = pick.place.spilled;
                fetched.found.insert(pick.seq, LogEntry { seq: Seq(pick.seq), message, spilled });
            }
            None => by_place.push(pick),
        }
    }
    add(&shared.counters.read_from_disk, by_place.len() as u64);
    by_place.sort_unstable_by_key(|p| (p.place.segment, p.place.offset));
    let mut rest = &by_place[..];
    while !rest.is_empty() {
        let run = run_length(rest);
        fetch_run(shared, &rest[..run], tenant, &mut fetched)?;
        rest = &rest[run..];
    }
    add(&shared.counters.read_entries, fetched.found.len() as u64);
    fetched.lost.sort_unstable();
    Ok((fetched.found.into_values().collect(), fetched.lost))
}

/// How many of the picks, sorted by place, lie close enough together to be read at once.
fn run_length(picks: &[Pick]) -> usize {
    let first = picks[0].place;
    let mut end = u64::from(first.offset);
    for (i, pick) in picks.iter().enumerate() {
        let at = u64::from(pick.place.offset);
        let stop = at + u64::from(pick.place.size) + MARGIN as u64;
        let near = pick.place.segment == first.segment
            && at <= end + RUN_GAP
            && stop <= u64::from(first.offset) + RUN_BYTES as u64;
        if i > 0 && !near {
            return i;
        }
        end = stop;
    }
    picks.len()
}

fn fetch_run(
    shared: &Shared,
    run: &[Pick],
    tenant: Option<TenantId>,
    fetched: &mut Fetched,
) -> Result<(), Refusal> {
    let segment = run[0].place.segment;
    let start = u64::from(run[0].place.offset);
    let last = run[run.len() - 1].place;
    let end = u64::from(last.offset) + u64::from(last.size) + MARGIN as u64;
    let open = shared.index().segments.get(&segment).map(|s| (s.file.clone(), s.salt));
    let Some((file, salt)) = open else { return again(shared, run, tenant, fetched) };
    let raw = match read_up_to(&*file, start, (end - start) as usize) {
        Ok(raw) => raw,
        // One bad sector is not to take its neighbours along.
        Err(_) if run.len() > 1 => {
            return run.iter().try_for_each(|p| fetch_run(shared, std::slice::from_ref(p), tenant, fetched));
        }
        Err(error) => return refused(shared, &run[0], &error, fetched),
    };
    for pick in run {
        let offset = u64::from(pick.place.offset);
        let part = raw.get((offset - start) as usize..).unwrap_or_default();
        match read_record(&*file, part, salt, offset, shared, tenant) {
            Ok(Some(message)) => {
                let spilled = pick.place.spilled;
                fetched.found.insert(pick.seq, LogEntry { seq: Seq(pick.seq), message, spilled });
            }
            // Trimmed or moved since it was chosen, or damaged.
            Ok(None) => {
                let now = shared.index().blocks.get(pick.seq);
                match now {
                    None => {}
                    Some(place) if place.segment != segment => {
                        again(shared, std::slice::from_ref(pick), tenant, fetched)?;
                    }
                    Some(_) => damaged(shared, pick, fetched),
                }
            }
            Err(error) => refused(shared, pick, &error, fetched)?,
        }
    }
    Ok(())
}

/// Fetches picks whose segment went away meanwhile from where they are now.
fn again(
    shared: &Shared,
    run: &[Pick],
    tenant: Option<TenantId>,
    fetched: &mut Fetched,
) -> Result<(), Refusal> {
    for pick in run {
        let Some(place) = shared.index().blocks.get(pick.seq) else { continue };
        if place.segment == pick.place.segment {
            damaged(shared, pick, fetched);
            continue;
        }
        let moved = Pick { place, ..pick.clone() };
        fetch_run(shared, std::slice::from_ref(&moved), tenant, fetched)?;
    }
    Ok(())
}

/// The reader goes on behind it; the index says where the next record begins, whatever this one's length claims.
fn damaged(shared: &Shared, pick: &Pick, fetched: &mut Fetched) {
    shared.damaged(pick.place.segment, u64::from(pick.place.offset), "a record does not match its checksum");
    fetched.lost.push(Seq(pick.seq));
}

/// The file system refused a read: it is tried again, until it counts as damage.
fn refused(shared: &Shared, pick: &Pick, error: &io::Error, fetched: &mut Fetched) -> Result<(), Refusal> {
    if !shared.read_refused(pick.place.segment, u64::from(pick.place.offset), error) {
        return Err(Refusal::Unavailable);
    }
    fetched.lost.push(Seq(pick.seq));
    Ok(())
}

/// Reads `len` bytes, or what the file has.
fn read_up_to(file: &dyn File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let len = (file.len()?.saturating_sub(offset) as usize).min(len);
    let mut raw = vec![0u8; len];
    file.read_at(&mut raw, offset)?;
    Ok(raw)
}

/// The message of a record; `None` if it is not intact.
fn read_record(
    file: &dyn File,
    part: &[u8],
    salt: u64,
    offset: u64,
    shared: &Shared,
    tenant: Option<TenantId>,
) -> io::Result<Option<Arc<Message>>> {
    let Some(len) = claimed_len(part) else { return Ok(None) };
    let more;
    let raw = if len <= part.len() {
        part
    } else {
        if len as u64 > shared.options.segment_bytes + RECORD_HEADER as u64 {
            return Ok(None);
        }
        more = read_up_to(file, offset, len)?;
        &more[..]
    };
    let Some(Record::Append(view)) = body_of(raw, salt, offset).and_then(decode) else { return Ok(None) };
    let Some(id) = shared.registry.load().id(view.tenant) else { return Ok(None) };
    // A message under another tenant's name than the index has it is damage, not data.
    if tenant.is_some_and(|t| t != id) {
        return Ok(None);
    }
    Ok(Some(view.to_message(id)))
}

/// The reading thread's life.
pub fn run(shared: &Shared) {
    let _guard = super::shared::PanicGuard(shared);
    while let Some(request) = shared.reads.wait() {
        serve(shared, request);
    }
}
