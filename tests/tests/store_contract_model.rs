//! The contract of the store port, on the simulator's model: what the core is tried against in the
//! simulation promises the same as what it runs on.

use mast_core::ids::{OpId, ShardIx, TenantId};
use mast_core::shard::input::Input;
use mast_core::store::port::{Durability, Read, Restored, Write};
use mast_core::store::position::Position;
use mast_sim::draw::Draw;
use mast_sim::world::state::PARTITION;
use mast_sim::world::store::SimStore;
use mast_tests::contract::{SHARDS, StoreUnderTest, Told};
use std::collections::VecDeque;

/// The model with all its batches cut as the draws say.
struct Model {
    store: SimStore,
    draw: Draw,
    reads: VecDeque<(u16, OpId, Read)>,
    told: Vec<Vec<Told>>,
    /// How it ends before it is opened again.
    power: bool,
}

impl Model {
    fn start(power: bool) -> Model {
        let told = (0..SHARDS).map(|_| Vec::new()).collect();
        Model { store: SimStore::default(), draw: Draw::new(11, 3), reads: VecDeque::new(), told, power }
    }

    /// Works until nothing is outstanding.
    fn pump(&mut self) {
        while self.store.can_begin() {
            // Everything that is to survive a power cut is synced, whatever class it was asked with.
            self.store.apply_batch(0, &mut self.draw);
            for told in self.store.finish_batch(true, SHARDS) {
                let event = match told.input {
                    Input::Committed(committed) => Told::Committed(committed),
                    Input::CommitDone { op, result } => Told::Commit(op, result),
                    other => panic!("a store does not say {other:?}"),
                };
                self.told[told.shard as usize].push(event);
            }
        }
        for (shard, op, read) in std::mem::take(&mut self.reads) {
            let result = self.store.read(0, &read);
            self.told[shard as usize].push(Told::Read(op, result));
        }
    }
}

impl StoreUnderTest for Model {
    fn commit(&mut self, shard: ShardIx, op: OpId, writes: Vec<Write>, class: Durability) {
        self.store.submit(shard.0, op, writes, class);
    }

    fn read(&mut self, shard: ShardIx, op: OpId, read: Read) {
        self.reads.push_back((shard.0, op, read));
    }

    fn set_floor(&mut self, shard: ShardIx, tenant: TenantId, floor: Option<Position>) {
        let floor = floor.map(|f| f.get(PARTITION).0);
        self.store.floor(shard.0, SHARDS, tenant, floor);
    }

    fn trim(&mut self) {
        // It trims when it is told a floor.
    }

    fn told(&mut self, shard: ShardIx) -> Vec<Told> {
        self.pump();
        std::mem::take(&mut self.told[shard.0 as usize])
    }

    fn reopen(&mut self) -> Vec<Restored> {
        self.pump();
        self.store.crash(self.power, &mut self.draw);
        let mut records = self.store.state.records();
        records.push(Restored::End { head: self.store.state.position() });
        records
    }
}

mod killed {
    use super::Model;
    mast_tests::contract_suite!(Model::start(false));
}

mod after_a_power_cut {
    use super::Model;
    mast_tests::contract_suite!(Model::start(true));
}
