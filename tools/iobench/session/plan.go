package session

import (
	"context"
	"time"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/engines"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Directory is one to measure.
type Directory struct {
	Path string
	Role string // journal, ledger or disk
}

// Step is a chapter of a plan.
type Step struct {
	Name   string
	Device int     // index of the directory
	Share  float64 // of the time and of the bytes
	Run    func(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error)
	Adjust func(o *chapter.Options) // what this chapter wants otherwise; may be nil
}

// Plan is what is to be done.
type Plan struct {
	Command         string
	Version         string
	Directories     []Directory // the first is the subject
	Raw             bool        // the subject is a block device
	Steps           []Step
	Budget          time.Duration // measured time
	Limit           time.Duration // for all of it, preparation included; 0: none
	MaxWrite        int64
	FileBytes       int64
	Rounds          int
	Seed            uint64
	Prefill         bool
	Sizes           []int
	Method          journal.IOMethod // "": the best one found, or the usual one
	Goal            time.Duration
	Rate            float64 // bytes a second, 0: not said
	EntryBytes      int
	CapPercent      float64
	Hours           int
	Labels          map[string]string
	AllowUnsuitable bool
	AllowLive       bool
	Progress        func(Status) // may be nil
	Started         func(*result.Run)
}

// Status is how far a run is.
type Status struct {
	Chapter string
	Cell    string
	Done    float64 // share of the run
	Elapsed time.Duration
	Left    time.Duration // estimate for the whole run
	Later   time.Duration // the part of it that chapters take that have not begun
	Written int64
}

// simple makes a step of a chapter that needs one place.
func simple(name string, device int, share float64, f chapter.Func) Step {
	return Step{Name: name, Device: device, Share: share, Run: func(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
		return f(ctx, places[device], o)
	}}
}

// Quick are the steps of `quick`: the curve, the states of allocation, streams, and gaps.
func Quick() []Step {
	return []Step{
		simple(result.ChapterSync, 0, 0.55, chapter.Sync),
		simple(result.ChapterAlloc, 0, 0.15, chapter.Alloc),
		simple(result.ChapterBandwidth, 0, 0.12, chapter.Bandwidth),
		simple(result.ChapterRead, 0, 0.08, chapter.Read),
		simple(result.ChapterStalls, 0, 0.10, chapter.Stalls),
	}
}

// Full are the steps of `full` with a journal directory and so many ledger directories.
func Full(ledgers int) []Step {
	steps := []Step{
		simple(result.ChapterSync, 0, 0.2, chapter.Sync),
		simple(result.ChapterAlloc, 0, 0.05, chapter.Alloc),
		simple(result.ChapterAlign, 0, 0.03, chapter.Align),
		simple(result.ChapterJournals, 0, 0.05, chapter.Journals),
		simple(result.ChapterMetadata, 0, 0.02, chapter.Metadata),
		simple(result.ChapterModel, 0, 0.05, chapter.Model),
	}
	first := 0 // of the disks that take the ledgers
	if ledgers > 0 {
		first = 1
		steps = append(steps, couple(0.03))
	}
	share := 1 / float64(max(ledgers, 1))
	for device := first; device < max(ledgers+1, 1); device++ {
		steps = append(steps, simple(result.ChapterBandwidth, device, 0.05*share, chapter.Bandwidth), simple(result.ChapterRead, device, 0.07*share, chapter.Read))
	}
	steps = append(steps, Interfere(0.2))
	for device := first; device < max(ledgers+1, 1); device++ {
		steps = append(steps, Sustain(device, 0.2*share))
	}
	return append(steps, simple(result.ChapterStalls, 0, 0.08, chapter.Stalls))
}

// RawBytesMin is the size that a device has at least to be measured as a whole.
const RawBytesMin = 16 << 20

// Raw are the steps for a whole device.
func Raw() []Step {
	return []Step{
		simple(result.ChapterSync, 0, 0.35, chapter.Sync),
		simple(result.ChapterAlign, 0, 0.1, chapter.Align),
		simple(result.ChapterBandwidth, 0, 0.1, chapter.Bandwidth),
		simple(result.ChapterRead, 0, 0.15, chapter.Read),
		Sustain(0, 0.2),
		simple(result.ChapterStalls, 0, 0.1, chapter.Stalls),
	}
}

// Interfere measures the journal beside backgrounds on its own disk and on those of the ledgers.
func Interfere(share float64) Step {
	return Step{Name: result.ChapterInterfere, Share: share, Run: func(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
		return chapter.Interfere(ctx, places[0], o, places[1:]...)
	}, Adjust: func(o *chapter.Options) { o.Rounds = min(o.Rounds, 3) }} // long slices say more about flushes that come now and then
}

func couple(share float64) Step {
	return Step{Name: result.ChapterCoupling, Share: share, Run: func(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
		return chapter.Coupling(ctx, places[0], o, places[1])
	}}
}

// Sustain writes on until caches are full, in a file as large as may be.
func Sustain(device int, share float64) Step {
	s := simple(result.ChapterSustain, device, share, chapter.Sustain)
	s.Adjust = func(o *chapter.Options) { o.FileBytes = max(o.FileBytes, sustainFile) }
	return s
}

// sustainFile is larger than the cache of any drive that was met; less is taken where there is less room.
const sustainFile = 64 << 30

// chapters are those that can be run by themselves.
var chapters = map[string]Step{
	result.ChapterSync:      simple(result.ChapterSync, 0, 1, chapter.Sync),
	result.ChapterAlloc:     simple(result.ChapterAlloc, 0, 1, chapter.Alloc),
	result.ChapterAlign:     simple(result.ChapterAlign, 0, 1, chapter.Align),
	result.ChapterJournals:  simple(result.ChapterJournals, 0, 1, chapter.Journals),
	result.ChapterBandwidth: simple(result.ChapterBandwidth, 0, 1, chapter.Bandwidth),
	result.ChapterRead:      simple(result.ChapterRead, 0, 1, chapter.Read),
	result.ChapterInterfere: Interfere(1),
	result.ChapterSustain:   Sustain(0, 1),
	result.ChapterStalls:    simple(result.ChapterStalls, 0, 1, chapter.Stalls),
	result.ChapterMetadata:  simple(result.ChapterMetadata, 0, 1, chapter.Metadata),
	result.ChapterModel:     simple(result.ChapterModel, 0, 1, chapter.Model),
	result.ChapterSoak:      simple(result.ChapterSoak, 0, 1, chapter.Soak),
	result.ChapterLive:      simple(result.ChapterLive, 0, 1, chapter.Live),
	result.ChapterEngines:   simple(result.ChapterEngines, 0, 1, engines.Run),
}

// Single is one chapter by itself.
func Single(name string) []Step { return []Step{chapters[name]} }

// spare is the room that other test files need beside the largest.
const spare = 512 * engine.MiB

// needBytes is the room that test files take.
func (p *Plan) needBytes() int64 {
	if p.Raw {
		return 0
	}
	return p.FileBytes + spare
}
