package autorecovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
)

// ErrDisabled is returned when nothing would ever move since re-replication is switched off in the cluster.
var ErrDisabled = errors.New("re-replication is switched off: `bindery recovery on` lets it go on")

// Stuck is a ledger that can not be moved as things are.
type Stuck struct {
	Ledger ledger.ID `json:"ledger"`
	Reason string    `json:"reason"`
}

// StuckError says that what is left on a bookie can not be moved.
type StuckError struct {
	Bookie ledger.BookieID
	Stuck  []Stuck
}

// Error implements error.
func (e *StuckError) Error() string {
	var b strings.Builder
	noun := "ledgers"
	if len(e.Stuck) == 1 {
		noun = "ledger"
	}
	fmt.Fprintf(&b, "%d %s on %s can not be moved:", len(e.Stuck), noun, e.Bookie)
	for i, s := range e.Stuck {
		if i == 10 {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " ledger %d (%s);", s.Ledger, s.Reason)
	}
	return strings.TrimSuffix(b.String(), ";")
}

// Progress is how far the emptying of a bookie is. Bytes are estimated from the lengths of closed ledgers.
type Progress struct {
	Bookie  ledger.BookieID `json:"bookie"`
	Ledgers int             `json:"ledgers"` // that still store entries there
	Bytes   int64           `json:"bytes"`
	Total   int             `json:"total_ledgers"` // at the beginning
	Done    int64           `json:"done_bytes"`
	Elapsed time.Duration   `json:"elapsed_ns"`
	ETA     time.Duration   `json:"eta_ns"` // 0: not known
	Stuck   []Stuck         `json:"stuck"`
}

// remaining looks at every ledger that names a bookie.
func remaining(ctx context.Context, v *metadata.Views, b ledger.BookieID) (p Progress, named []ledger.ID, err error) {
	p.Bookie = b
	list, err := v.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return p, nil, err
	}
	draining, err := v.Replication.Draining(ctx)
	if err != nil {
		return p, nil, err
	}
	writable, up := 0, false
	for _, x := range list {
		up = up || x.ID == b
		if !x.ReadOnly && x.ID != b && !slices.Contains(draining, x.ID) {
			writable++
		}
	}
	for r, err := range v.Ledgers.Naming(ctx, b) {
		if err != nil {
			return p, nil, err
		}
		named = append(named, r.ID)
		if !r.Metadata.StoresOn(b) {
			continue
		}
		p.Ledgers++
		p.Bytes += bytesOn(r.Metadata, b)
		switch {
		case r.Metadata.WriteQuorum == 1 && !up && r.Metadata.State == ledger.StateClosed:
			p.Stuck = append(p.Stuck, Stuck{r.ID, "its only copy is there, and the bookie is down"})
		case writable < r.Metadata.Ensemble:
			p.Stuck = append(p.Stuck, Stuck{r.ID, tooFew(r.Metadata.Ensemble, writable)})
		}
	}
	return p, named, nil
}

// tooFew says that the other bookies that can be written are too few for an ensemble.
func tooFew(need, others int) string {
	bookies := "bookies"
	if need == 1 {
		bookies = "bookie"
	}
	switch others {
	case 0:
		return fmt.Sprintf("it needs %d %s, and no other is writable", need, bookies)
	case 1:
		return fmt.Sprintf("it needs %d %s, and 1 other is writable", need, bookies)
	}
	return fmt.Sprintf("it needs %d %s, and %d others are writable", need, bookies, others)
}

// bytesOn estimates what a closed ledger has on a bookie.
func bytesOn(m *ledger.Metadata, b ledger.BookieID) int64 {
	if m.State != ledger.StateClosed || m.LastEntry < 0 {
		return 0
	}
	entries := int64(0)
	for i, f := range m.Fragments {
		if last, _ := m.FinalFragment(i); slices.Contains(f.Bookies, b) {
			entries += int64(last-f.First+1) * int64(m.WriteQuorum) / int64(m.Ensemble)
		}
	}
	return m.Length / (int64(m.LastEntry) + 1) * entries
}

// EmptyOptions describe the emptying of a bookie.
type EmptyOptions struct {
	Views  *metadata.Views
	Bookie ledger.BookieID
	Poll   time.Duration  // least time between two looks; default 2 s
	Report func(Progress) // after each look; may be nil
}

const pollMax = 5 * time.Minute

// Empty marks every ledger that names a bookie, and waits until the workers of the cluster have moved what it stores: no
// ledger stores an entry there, and no mark names it. A bookie that is up is read while its copies are moved, if it has been
// set draining. It returns ErrDisabled, or a *StuckError if everything that is left can not be moved.
func Empty(ctx context.Context, o EmptyOptions) error {
	v := o.Views
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	started, first := time.Now(), Progress{}
	stuck := 0
	for round := 0; ; round++ {
		on, err := v.Replication.Enabled(ctx)
		if err != nil {
			return err
		}
		if !on {
			return ErrDisabled
		}
		looked := time.Now()
		p, named, err := remaining(ctx, v, o.Bookie)
		if err != nil {
			return err
		}
		marked, err := marksOf(ctx, v, o.Bookie)
		if err != nil {
			return err
		}
		look := time.Since(looked)
		if round == 0 {
			first = p
		}
		p.Total, p.Done, p.Elapsed = first.Ledgers, max(first.Bytes-p.Bytes, 0), time.Since(started)
		if p.Done > 0 {
			p.ETA = time.Duration(float64(p.Elapsed) * float64(p.Bytes) / float64(p.Done)).Round(time.Second)
		}
		if o.Report != nil {
			o.Report(p)
		}
		for _, id := range named {
			if marked[id] {
				continue
			}
			if _, err := v.Replication.Mark(ctx, id, []ledger.BookieID{o.Bookie}, time.Now()); err != nil {
				return err
			}
		}
		if p.Ledgers == 0 && len(named) == 0 {
			return markGone(ctx, o)
		}
		if stuck++; len(p.Stuck) < p.Ledgers || p.Ledgers == 0 {
			stuck = 0
		}
		if stuck >= 3 {
			return &StuckError{Bookie: o.Bookie, Stuck: p.Stuck}
		}
		// A look reads every record: it takes a tenth of the time at most. Marking is the work itself: with many ledgers the
		// first round takes long, and the workers are done soon after.
		if err := pace.Sleep(ctx, min(max(o.Poll, 10*look), pollMax)); err != nil {
			return err
		}
	}
}

// marksOf returns the ledgers whose marks name a bookie.
func marksOf(ctx context.Context, v *metadata.Views, b ledger.BookieID) (map[ledger.ID]bool, error) {
	marked := map[ledger.ID]bool{}
	for m, err := range v.Replication.All(ctx, -1) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(m.Replicas, b) {
			marked[m.Ledger] = true
		}
	}
	return marked, nil
}

// markGone waits until no mark names the bookie: a worker that has published may still be looking at the ledger.
func markGone(ctx context.Context, o EmptyOptions) error {
	for {
		marked, err := marksOf(ctx, o.Views, o.Bookie)
		if err != nil || len(marked) == 0 {
			return err
		}
		if err := pace.Sleep(ctx, o.Poll); err != nil {
			return err
		}
	}
}
