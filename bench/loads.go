package main

import (
	"fmt"
	"time"
)

// load is one figure: a program to run against a server, or a journal.
type load struct {
	name   string
	server string // "": none; "one": one bookie; "three": three bookies
	args   []string
	open   bool          // the rate is given: measured for as long as several flushes take
	tail   bool          // latency is from an add's acknowledgement to a reader that follows
	time   time.Duration // instead of the usual time, without warming up
}

// loads of the table, in the order in which a round measures them. The raw ones drive a single bookie as other
// implementations are driven; %BOOKIE% and %DIR% are filled in.
func loads() []load {
	raw := func(name string, args ...string) load {
		return load{name: name, server: "one", args: append([]string{"bench", "cluster", "--raw", "%BOOKIE%"}, args...)}
	}
	cluster := func(name string, args ...string) load {
		return load{name: name, server: "three", args: append([]string{"bench", "cluster"}, args...)}
	}
	tail := func(name string, args ...string) load {
		return load{name: name, server: "three", tail: true, args: append([]string{"bench", "cluster", "--tail"}, args...)}
	}
	journal := func(name string, args ...string) load {
		return load{name: name, args: append([]string{"bench", "journal", "%DIR%"}, args...)}
	}
	at := func(l load, rate int) load {
		l.open, l.args = true, append(l.args, "--rate", fmt.Sprint(rate))
		return l
	}
	list := []load{
		journal("journal: 1 record of 1 KiB in flight", "--outstanding", "1"),
		journal("journal: 8,000 of 1 KiB", "--outstanding", "8000"),
		journal("journal: 128 of 64 KiB", "--outstanding", "128", "--size", "64KiB"),
		raw("bookie: 1 connection, 1 in flight", "--connections", "1", "--outstanding", "1"),
		raw("bookie: 64 connections, 1 in flight each", "--connections", "64", "--outstanding", "1"),
	}
	for _, rate := range []int{5000, 20000, 60000} {
		list = append(list, at(raw(fmt.Sprintf("bookie: open loop, %d/s", rate)), rate))
	}
	return append(list,
		raw("bookie: closed loop, 1 ledger, 1 x 2,000", "--outstanding", "2000", "--connections", "1"),
		raw("bookie: closed loop, 4 ledgers, 4 x 2,000", "--outstanding", "2000"),
		raw("bookie: closed loop, 1,000 ledgers, 4 x 512", "--outstanding", "512", "--ledgers", "1000"),
		raw("bookie: closed loop, 100 B, 4 x 2,000", "--outstanding", "2000", "--size", "100B"),
		raw("bookie: closed loop, 64 KiB, 4 x 32", "--outstanding", "32", "--size", "64KiB"),
		cluster("cluster 3/3/2: 1 ledger, 1 in flight", "--ledgers", "1", "--outstanding", "1"),
		cluster("cluster 3/3/2: 1 ledger, 2,000 in flight", "--ledgers", "1", "--outstanding", "2000"),
		cluster("cluster 3/3/2: 8 ledgers, 500 in flight each", "--ledgers", "8", "--outstanding", "500"),
		cluster("cluster 3/3/2: 1,000 ledgers, 4 in flight each", "--ledgers", "1000", "--outstanding", "4"),
		at(cluster("cluster 3/3/2: open loop, 5000/s", "--ledgers", "8"), 5000),
		tail("tail 3/3/2: 1 ledger, 1 in flight", "--ledgers", "1", "--outstanding", "1"),
		at(tail("tail 3/3/2: open loop, 1000/s, 1 ledger", "--ledgers", "1"), 1000),
		at(tail("tail 3/3/2: open loop, 5000/s, 8 ledgers", "--ledgers", "8"), 5000),
	)
}

// measured is for how long a load is measured.
func (b *benchmark) measured(l load) time.Duration {
	if l.time > 0 {
		return l.time
	}
	if l.open {
		return b.open
	}
	return b.duration
}
