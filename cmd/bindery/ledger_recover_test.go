package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/binderylog/bindery/ledgerclient"
	"github.com/stretchr/testify/require"
)

func TestLossReport(t *testing.T) {
	var out bytes.Buffer
	reportLoss(&out, nil)
	require.Empty(t, out.String())
	require.Nil(t, toLossJSON(nil))
	l := &ledgerclient.Loss{Cut: 9, Silent: []ledgerclient.BookieID{"a:1", "b:1"}, Unfenced: []ledgerclient.BookieID{"a:1"}, Thin: 7, Seen: 12,
		Text: "the note", Causes: []error{errors.New("bookie a:1: read: no")}}
	reportLoss(&out, l)
	require.Equal(t, `LOSS ACCEPTED:
  the ledger ends in front of entry 9: a:1, b:1 could neither return nor deny it
  some bookie holds entries up to 12: they are lost, and may have been acknowledged
  not known to be fenced: a:1. A writer that still reaches them may have further entries acknowledged: stop it
  entries from 7 on have fewer copies than the ack quorum: no bookie was left to write them to
  noted in the ledger's record (bindery.accepted-loss)
`, out.String())
	out.Reset()
	require.NoError(t, printJSON(&out, recoveredJSON{ledgerJSON{ID: 3}, toLossJSON(l)}))
	require.Contains(t, out.String(), `"cut_at_entry": 9`)
	require.Contains(t, out.String(), `"answers": [`)
	out.Reset()
	reportLoss(&out, &ledgerclient.Loss{Cut: 4, Silent: []ledgerclient.BookieID{"a:1"}, Thin: -1, Seen: 2})
	require.Contains(t, out.String(), "no bookie that answered holds entry 4 or a later one")
	require.NotContains(t, out.String(), "copies")
}

func TestLossNote(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	require.Regexp(t, `^accepted by .+@.+ at 2031-05-06T07:08:09Z$`, lossNote("", at))
	require.Regexp(t, `^accepted by .+ at 2031-05-06T07:08:09Z: rack 4 burnt`, lossNote("rack 4 burnt\ndown", at))
}

func TestRecoverUsage(t *testing.T) {
	code, _, stderr := cli("ledger", "recover", "5", "--reason", "x")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "needs --accept-loss")
	code, _, _ = cli("ledger", "recover", "5", "6", "--accept-loss")
	require.Equal(t, exitUsage, code, "one ledger at a time")
}
