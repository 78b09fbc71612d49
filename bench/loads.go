package main

import "fmt"

// load is one figure: a program to run against a server, or a journal.
type load struct {
	name   string
	server string // "": none; "one": one bookie; "three": three bookies
	args   []string
}

// loads of the table, in the order in which a round measures them. The raw ones drive a single bookie as other
// implementations are driven; %BOOKIE% and %DIR% are filled in.
func loads() []load {
	raw := func(name string, args ...string) load {
		return load{name, "one", append([]string{"bench", "cluster", "--raw", "%BOOKIE%"}, args...)}
	}
	cluster := func(name string, args ...string) load {
		return load{name, "three", append([]string{"bench", "cluster"}, args...)}
	}
	journal := func(name string, args ...string) load {
		return load{name, "", append([]string{"bench", "journal", "%DIR%"}, args...)}
	}
	list := []load{
		journal("journal: 1 record of 1 KiB in flight", "--outstanding", "1"),
		journal("journal: 8,000 of 1 KiB", "--outstanding", "8000"),
		journal("journal: 128 of 64 KiB", "--outstanding", "128", "--size", "64KiB"),
		raw("bookie: 1 connection, 1 in flight", "--connections", "1", "--outstanding", "1"),
		raw("bookie: 64 connections, 1 in flight each", "--connections", "64", "--outstanding", "1"),
	}
	for _, rate := range []int{5000, 20000, 60000} {
		list = append(list, raw(fmt.Sprintf("bookie: open loop, %d/s", rate), "--rate", fmt.Sprint(rate)))
	}
	return append(list,
		raw("bookie: closed loop, 4 ledgers, 4 x 2,000", "--outstanding", "2000"),
		raw("bookie: closed loop, 1,000 ledgers, 4 x 512", "--outstanding", "512", "--ledgers", "1000"),
		raw("bookie: closed loop, 100 B, 4 x 2,000", "--outstanding", "2000", "--size", "100B"),
		raw("bookie: closed loop, 64 KiB, 4 x 32", "--outstanding", "32", "--size", "64KiB"),
		cluster("cluster 3/3/2: 1 ledger, 1 in flight", "--ledgers", "1", "--outstanding", "1"),
		cluster("cluster 3/3/2: 8 ledgers, 500 in flight each", "--ledgers", "8", "--outstanding", "500"),
		cluster("cluster 3/3/2: open loop, 5000/s", "--ledgers", "8", "--rate", "5000"),
	)
}
