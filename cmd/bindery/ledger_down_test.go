package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

func TestDescribeDown(t *testing.T) {
	gone := func(id string) error {
		return &ledgerclient.BookieError{Bookie: ledgerclient.BookieID(id), Op: "connect", Err: errors.New("publishes no address")}
	}
	slow := &ledgerclient.BookieError{Bookie: "n3", Op: "read", Err: errors.New("timed out")}
	running := map[ledgerclient.BookieID]bool{"n3": true}
	for want, causes := range map[string][]error{
		"ledger 7 entry 2: bookie n1 is not running":                             {gone("n1"), gone("n1"), gone("n1"), ledgerclient.ErrNotEnoughBookies},
		"ledger 7 entry 2: bookies n1, n2 are not running":                       {gone("n1"), gone("n2"), gone("n1")},
		"ledger 7 entry 2: bookie n1 is not running; bookie n3: read: timed out": {gone("n1"), slow},
	} {
		q := &ledgerclient.QuorumError{Ledger: 7, Entry: 2, Causes: causes}
		require.EqualError(t, describeDown(7, q, q, running), want)
	}
	q := &ledgerclient.QuorumError{Ledger: 7, Entry: 2, Need: 1, Causes: []error{slow}}
	require.Equal(t, q.Error(), describeDown(7, q, q, running).Error())
}
