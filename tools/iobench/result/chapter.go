package result

// Names of chapters.
const (
	ChapterSync      = "sync"      // durable writes by method and size
	ChapterAlloc     = "alloc"     // durable writes by state of allocation
	ChapterAlign     = "align"     // durable writes by alignment
	ChapterJournals  = "journals"  // parallel independent journals on one disk
	ChapterCoupling  = "coupling"  // a journal here while another disk syncs
	ChapterBandwidth = "bandwidth" // sequential writing
	ChapterRead      = "read"      // sequential and random reading
	ChapterInterfere = "interfere" // the journal beside ledger flushes, reads, compaction and index merges
	ChapterSustain   = "sustain"   // writing on after caches are full
	ChapterStalls    = "stalls"    // gaps between completions at a fixed rate
	ChapterMetadata  = "metadata"  // create, rename, unlink, directory sync, fallocate
	ChapterModel     = "model"     // the real journal at a target load
	ChapterPipeline  = "pipeline"  // durable writes one by one and two at once, beside flushes, as `verify` measures them
	ChapterEngines   = "engines"   // our journal against others
	ChapterSoak      = "soak"      // hours
	ChapterLive      = "live"      // beside a running bookie
)

// Chapter is one part of a run.
type Chapter struct {
	Name         string    `json:"name"`
	Device       int       `json:"device"` // 0 is the subject, n is other_devices[n-1]
	StartedS     float64   `json:"started_s"`
	ElapsedS     float64   `json:"elapsed_s"`
	Complete     bool      `json:"complete"`
	WrittenBytes int64     `json:"written_bytes"`
	ReadBytes    int64     `json:"read_bytes"`
	LimitedBy    string    `json:"limited_by,omitempty"` // device, CPU, file system or noise
	Cells        []Cell    `json:"cells"`
	Verdicts     []Verdict `json:"verdicts,omitempty"`
	Series       []Series  `json:"series,omitempty"`
	Stalls       []Stalls  `json:"stalls,omitempty"`
	Sustained    *Sustain  `json:"sustained,omitempty"`
	Exceedance   []Hour    `json:"exceedance,omitempty"` // of `soak`
}

// Cell returns the cell with this id, nil if there is none.
func (c *Chapter) Cell(id string) *Cell {
	for i := range c.Cells {
		if c.Cells[i].ID == id {
			return &c.Cells[i]
		}
	}
	return nil
}

// Overloaded reports whether a load at a rate fell behind for good: its times are those of a queue.
func (c *Cell) Overloaded() bool { return c.Loop == "open" && 10*c.Late > 9*c.Ops }

// Cell is one thing that was measured: what was done, and what came of it over all rounds.
type Cell struct {
	ID string `json:"id"` // unique in the chapter, "dsync/4096"

	Op               string  `json:"op"`                          // write, read, create, rename, unlink, dirsync, fallocate, add (of an engine), ...
	Method           string  `json:"method,omitempty"`            // journal.io by which writes are durable
	Allocation       string  `json:"allocation,omitempty"`        // append, sparse, fallocate, zeroed, recycled
	Background       string  `json:"background,omitempty"`        // idle, flush, catchup, compaction, index, all
	BackgroundDevice int     `json:"background_device,omitempty"` // 0: the chapter's own disk too
	Engine           string  `json:"engine,omitempty"`            // bindery, tidwall/wal, plain
	Pattern          string  `json:"pattern,omitempty"`           // sequential or random
	BlockBytes       int     `json:"block_bytes"`
	AlignBytes       int     `json:"align_bytes,omitempty"` // offsets are odd multiples of it
	Depth            int     `json:"depth"`                 // in flight at once
	Journals         int     `json:"journals,omitempty"`
	Loop             string  `json:"loop"` // closed: the next one starts when the last is done; open: at its intended time
	AskedPerS        float64 `json:"asked_per_s,omitempty"`
	Durable          bool    `json:"durable"`               // false for writes: NOT DURABLE
	Buffered         bool    `json:"buffered"`              // through the page cache
	Unsupported      string  `json:"unsupported,omitempty"` // why it could not be measured; nothing was put in its place

	Ops          int64    `json:"ops"`
	Bytes        int64    `json:"bytes"`
	ElapsedS     float64  `json:"elapsed_s"`
	OpsPerS      float64  `json:"ops_per_s"`
	MBPerS       float64  `json:"mb_per_s"`
	Late         int64    `json:"late,omitempty"`    // open loop: started after their time
	Steady       bool     `json:"steady"`            // the last five windows lie within 10 %
	CPUPercent   float64  `json:"cpu_pct"`           // of one core
	Latency      *Latency `json:"latency,omitempty"` // from the (intended) start to the end
	WritePart    *Latency `json:"write_part,omitempty"`
	SyncPart     *Latency `json:"sync_part,omitempty"` // where write and sync are two calls
	Rounds       []Round  `json:"rounds,omitempty"`
	ClosedMaxUS  float64  `json:"closed_loop_max_us,omitempty"` // open loop: the longest service time, without the wait for its turn
	BackgroundMB float64  `json:"background_mb_per_s,omitempty"`
}

// Latency is a distribution. Percentiles are of all rounds together.
type Latency struct {
	Count     int64   `json:"count"`
	MinUS     float64 `json:"min_us"`
	MeanUS    float64 `json:"mean_us"`
	P50US     float64 `json:"p50_us"`
	P90US     float64 `json:"p90_us"`
	P99US     float64 `json:"p99_us"`
	P999US    float64 `json:"p99_9_us"`
	P9999US   float64 `json:"p99_99_us"`
	MaxUS     float64 `json:"max_us"`
	Histogram string  `json:"hdr_v2_base64"` // of nanoseconds
}

// Round is one of the interleaved rounds of a cell.
type Round struct {
	StartedS float64 `json:"started_s"` // since the start of the run
	ElapsedS float64 `json:"elapsed_s"`
	Ops      int64   `json:"ops"`
	P50US    float64 `json:"p50_us"`
	P99US    float64 `json:"p99_us"`
	MaxUS    float64 `json:"max_us"`
	MBPerS   float64 `json:"mb_per_s"`
}

// Verdict compares cells. Without Significant there is no ranking: the lead lies inside the spread of the rounds.
type Verdict struct {
	Question    string  `json:"question"` // "method at 4096 bytes"
	Best        string  `json:"best"`     // id of a cell
	Second      string  `json:"second"`
	Metric      string  `json:"metric"` // p50_us, p99_us, mb_per_s
	Ratio       float64 `json:"ratio"`  // second / best, or best / second for rates: at least 1
	RoundsWon   int     `json:"rounds_won"`
	Rounds      int     `json:"rounds"`
	SpreadPct   float64 `json:"spread_pct"` // of the rounds of both, the larger
	Significant bool    `json:"significant"`
}

// Series is a figure over time in steps of IntervalS. Columns have the same length or are absent.
type Series struct {
	Cell         string    `json:"cell"`
	StartedS     float64   `json:"started_s"`
	IntervalS    float64   `json:"interval_s"` // 1
	Ops          []int64   `json:"ops"`
	MBPerS       []float64 `json:"mb_per_s"`
	P50US        []float64 `json:"p50_us,omitempty"`
	P99US        []float64 `json:"p99_us,omitempty"`
	MaxUS        []float64 `json:"max_us,omitempty"`
	TemperatureC []float64 `json:"temperature_c,omitempty"`
	ClockMHz     []float64 `json:"clock_mhz,omitempty"`
}

// Stalls are the gaps between completions of a cell.
type Stalls struct {
	Cell      string       `json:"cell"`
	LongestUS float64      `json:"longest_us"`
	Over10MS  int64        `json:"over_10_ms"`
	Over50MS  int64        `json:"over_50_ms"`
	Over100MS int64        `json:"over_100_ms"`
	Over500MS int64        `json:"over_500_ms"`
	PeriodS   float64      `json:"period_s,omitempty"` // they come back about so often; 0: no rhythm seen
	Events    []StallEvent `json:"events,omitempty"`   // the longest, in order of time
}

// StallEvent is one gap.
type StallEvent struct {
	AtS   float64 `json:"at_s"` // since the start of the chapter
	GapUS float64 `json:"gap_us"`
}

// Sustain is what a long write showed.
type Sustain struct {
	FastMBPerS   float64 `json:"fast_mb_per_s"`   // before the drop, or throughout
	SteadyMBPerS float64 `json:"steady_mb_per_s"` // of the last windows
	FastBytes    int64   `json:"fast_bytes"`      // written before the drop; all of it if there was none
	Dropped      bool    `json:"dropped"`
	RecoverS     float64 `json:"recover_s,omitempty"` // at the asked rate, until latency was as before
	Throttled    bool    `json:"throttled"`           // the drop came with heat
}

// Hour is a row of the table of `soak`.
type Hour struct {
	Hour        int     `json:"hour"`
	Ops         int64   `json:"ops"`
	P99US       float64 `json:"p99_us"`
	MaxUS       float64 `json:"max_us"`
	Over1MSPct  float64 `json:"over_1_ms_pct"`
	Over8MSPct  float64 `json:"over_8_ms_pct"`
	Over64MSPct float64 `json:"over_64_ms_pct"`
	MBPerS      float64 `json:"mb_per_s"`
}
