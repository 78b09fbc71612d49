package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/ledgerclient"
)

// describeRead is describe for a failed read: of bookies that are not running it says that, once, instead of how they
// could not be reached.
func describeRead(ctx context.Context, client *ledgerclient.Client, id ledgerclient.LedgerID, err error) error {
	var q *ledgerclient.QuorumError
	if !errors.As(err, &q) || ctx.Err() != nil {
		return describe(id, err)
	}
	up, lerr := client.Bookies(ctx)
	if lerr != nil {
		return describe(id, err)
	}
	running := map[ledgerclient.BookieID]bool{}
	for _, b := range up {
		running[b.ID] = true
	}
	return describeDown(id, q, err, running)
}

func describeDown(id ledgerclient.LedgerID, q *ledgerclient.QuorumError, err error, running map[ledgerclient.BookieID]bool) error {
	var down, others []string
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for _, cause := range q.Causes {
		var b *ledgerclient.BookieError
		switch {
		case errors.As(cause, &b) && b.Code == "" && !running[b.Bookie]:
			add(&down, string(b.Bookie))
		case errors.As(cause, &b):
			add(&others, cause.Error())
		}
	}
	if len(down) == 0 {
		return describe(id, err)
	}
	where := fmt.Sprintf("ledger %d", id)
	if q.Entry >= 0 {
		where += fmt.Sprintf(" entry %d", q.Entry)
	}
	verb := "bookie " + down[0] + " is"
	if len(down) > 1 {
		verb = "bookies " + strings.Join(down, ", ") + " are"
	}
	return errors.New(strings.Join(append([]string{where + ": " + verb + " not running"}, others...), "; "))
}
