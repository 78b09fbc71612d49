package result

// Recommendation is what follows from the figures.
type Recommendation struct {
	Settings     []Setting    `json:"settings"`
	Reasons      []string     `json:"reasons"`    // in sentences
	Confidence   string       `json:"confidence"` // high, medium or low
	Why          string       `json:"confidence_why"`
	LimitedBy    string       `json:"limited_by"`              // device, CPU, file system or noise
	JournalGrade string       `json:"journal_grade,omitempty"` // A, B, C or F
	LedgerGrade  string       `json:"ledger_grade,omitempty"`
	Header       string       `json:"header"` // comment of the snippet: date, device, serial hash, kernel, file system
	Predictions  []Prediction `json:"predictions,omitempty"`
}

// Setting is a line for the configuration file.
type Setting struct {
	Table    string `json:"table"` // journal
	Key      string `json:"key"`   // io
	Value    string `json:"value"` // as TOML: "\"dsync\"", with its quotes
	Evidence string `json:"evidence"`
	// WithinSpread says that the rounds did not put this value before others: one that a configuration has already stays.
	WithinSpread bool `json:"within_spread,omitempty"`
}

// Prediction is what a bookie on this disk is expected to do at a load.
type Prediction struct {
	EntryBytes int     `json:"entry_bytes"`
	LoadPct    float64 `json:"load_pct"` // of the peak; 100 is the peak itself
	AddsPerS   float64 `json:"adds_per_s"`
	MBPerS     float64 `json:"mb_per_s"`
	P50US      float64 `json:"p50_us"`
	P99US      float64 `json:"p99_us"`
	P99LowUS   float64 `json:"p99_low_us"` // by the slowest and the fastest round
	P99HighUS  float64 `json:"p99_high_us"`
	GroupBytes int     `json:"group_bytes"` // mean
	LimitedBy  string  `json:"limited_by"`  // device or CPU
	Model      string  `json:"model"`       // how it was computed
}

// Verification puts predictions beside what a bookie then did.
type Verification struct {
	PeakPredictedPerS float64    `json:"peak_predicted_adds_per_s"`
	PeakMeasuredPerS  float64    `json:"peak_measured_adds_per_s"`
	PeakNoisePct      float64    `json:"peak_noise_pct"`
	PeakPausedPct     float64    `json:"peak_paused_pct"`
	PeakWithin        bool       `json:"peak_within"` // 20 %
	Command           string     `json:"command"`     // that measured
	Rest              string     `json:"rest"`        // what stood for all that an add takes beside the disk
	Rows              []Verified `json:"rows"`
	Within            bool       `json:"within"` // all of it
	Noisy             bool       `json:"noisy"`  // what is not within may be the machine's noise: there is no verdict
}

// Verified is one load. Percentiles are medians of the rounds.
type Verified struct {
	Predicted         Prediction `json:"predicted"`
	MeasuredPerS      float64    `json:"measured_adds_per_s"`
	MeasuredP50US     float64    `json:"measured_p50_us"`
	MeasuredP99US     float64    `json:"measured_p99_us"`
	MeasuredP99LowUS  float64    `json:"measured_p99_low_us"` // of the rounds
	MeasuredP99HighUS float64    `json:"measured_p99_high_us"`
	NoisePct          float64    `json:"noise_pct"`  // what the disk's figures taken before and after a round predict lies so far apart
	PausedPct         float64    `json:"paused_pct"` // of the time the machine stood still while the bookie was measured; it is in the prediction
	P50Within         bool       `json:"p50_within"` // 20 %
	P99Within         bool       `json:"p99_within"` // the spread of the rounds
	Noisy             bool       `json:"noisy"`      // more noise than a prediction may be off
}

// VerifyWithin is how far, as a share, a prediction of a rate or a median may be off.
const VerifyWithin = 0.20

// Judge fills in the verdicts that follow from the figures: noise of the machine that is larger than what a prediction may
// be off leaves nothing to say.
func (v *Verification) Judge() {
	v.Within, v.Noisy = v.PeakWithin, false
	proven := !v.PeakWithin && v.PeakNoisePct <= 100*VerifyWithin
	for i := range v.Rows {
		r := &v.Rows[i]
		r.Noisy = r.NoisePct > 100*VerifyWithin
		if r.P50Within && r.P99Within {
			continue
		}
		v.Within = false
		proven = proven || !r.Noisy
	}
	v.Noisy = !v.Within && !proven
}
