//! The contract of the store port, on the embedded store.

mod threads_on_real_files {
    use mast_tests::store::Threaded;
    mast_tests::contract_suite!(Threaded::start());
}

mod inline_on_the_fault_model {
    use mast_tests::store::Inline;
    mast_tests::contract_suite!(Inline::start(true));
}

mod inline_killed_instead_of_closed {
    use mast_tests::store::Inline;
    mast_tests::contract_suite!(Inline::start(false));
}
