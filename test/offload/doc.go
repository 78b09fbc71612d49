// Package offload takes one large ledger out to object stores and back with the real program, while its processes are killed with -9 at
// random moments: a standalone with folders, and a fleet of offload workers with the buckets of a real S3 server.
//
// At the end of each form every byte is compared by SHA-256, twice with as many targets wiped as there are parity shards; in between a
// repair, itself killed, makes redundancy whole. All along it is watched that bookies give their copies up only after the tier was read
// back and the deletion lag was over, and that one of both copies always exists; afterwards targets hold exactly the objects that the
// record names, and none once the ledger is deleted.
//
// `make offload-big SIZE=5GiB ROUNDS=20 SEED=1` runs it; without the build tag `offloadbig` the package is empty. It takes about five
// times SIZE of disk.
package offload
