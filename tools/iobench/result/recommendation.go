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
	Command           string     `json:"command"` // that measured
	Rows              []Verified `json:"rows"`
	Within            bool       `json:"within"` // all rows
}

// Verified is one load.
type Verified struct {
	Predicted     Prediction `json:"predicted"`
	MeasuredPerS  float64    `json:"measured_adds_per_s"`
	MeasuredP50US float64    `json:"measured_p50_us"`
	MeasuredP99US float64    `json:"measured_p99_us"`
	P50Within     bool       `json:"p50_within"` // 20 %
	P99Within     bool       `json:"p99_within"` // the spread of the rounds
}
