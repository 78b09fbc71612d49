package admin

import (
	"errors"
	"math"
	"net/http"
	"strconv"
)

// status is the body of /api/v2/status.
type status struct {
	Version string     `json:"version"`
	Bookie  *State     `json:"bookie,omitempty"`
	Disks   []Disk     `json:"disks,omitempty"`
	Marks   []Mark     `json:"marks,omitempty"`
	GC      []GCDetail `json:"gc,omitempty"`
	Bookies int        `json:"bookies_in_process"`
}

// v2Routes adds the typed paths.
func (s *Server) v2Routes(b Bookie, t tree) {
	get := func(path string, h handler) {
		t["/api/v2"+path] = endpoint{methods: map[string]handler{http.MethodGet: h}}
	}
	get("/health/live", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "live"})
	})
	get("/health/ready", func(w http.ResponseWriter, _ *http.Request) { ready(w, b) })
	get("/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.status(b)) })
	if s.o.Config != nil {
		get("/config", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, s.o.Config.Effective()) })
	}
	if s.o.Offload != nil {
		get("/offload", s.offload)
	}
	if s.o.Reload != nil {
		t["/api/v2/config/reload"] = endpoint{
			methods: map[string]handler{http.MethodPost: func(w http.ResponseWriter, _ *http.Request) {
				changes, err := s.o.Reload()
				if err != nil {
					problem(w, http.StatusConflict, err.Error())
					return
				}
				writeJSON(w, http.StatusOK, map[string]any{"changes": changes})
			}},
			changes: map[string]bool{http.MethodPost: true},
		}
	}
	if b.Disks != nil {
		get("/disks", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, b.Disks.Disks()) })
	}
	if b.Journal != nil {
		get("/journal", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, map[string]any{"journals": b.Journal.Journals(), "marks": b.Journal.Marks()})
		})
	}
	if b.GC != nil {
		gcV2Routes(b.GC, t)
	}
	if b.Flush != nil {
		t["/api/v2/flush"] = endpoint{
			methods: map[string]handler{http.MethodPost: func(w http.ResponseWriter, r *http.Request) {
				if err := b.Flush.Flush(r.Context()); err != nil {
					problem(w, http.StatusConflict, err.Error())
					return
				}
				writeJSON(w, http.StatusOK, map[string]bool{"flushed": true})
			}},
			changes: map[string]bool{http.MethodPost: true},
		}
	}
}

// offloadLimit is how many ledgers are listed unless the caller says how many.
const offloadLimit = 1000

// offload answers with the tier's figures and a page of its ledgers: ?after=ID&limit=N.
func (s *Server) offload(w http.ResponseWriter, r *http.Request) {
	number := func(name string, otherwise, low int64) (int64, bool) {
		text := r.URL.Query().Get(name)
		if text == "" {
			return otherwise, true
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n >= low
	}
	after, ok := number("after", -1, 0)
	limit, fine := number("limit", offloadLimit, 1)
	if !ok || !fine {
		problem(w, http.StatusBadRequest, "after is a ledger id, limit a number of ledgers from 1")
		return
	}
	v, err := s.o.Offload.Offload(r.Context(), after, int(min(limit, math.MaxInt32)))
	switch {
	case errors.Is(err, ErrNoRole):
		problem(w, http.StatusNotFound, err.Error())
	case err != nil:
		problem(w, http.StatusServiceUnavailable, err.Error())
	default:
		writeJSON(w, http.StatusOK, v)
	}
}

// ready answers 200 once the bookie serves; before that 503 with how far the replay is.
func ready(w http.ResponseWriter, b Bookie) {
	if b.State == nil {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
		return
	}
	st := b.State.State()
	body := map[string]any{"status": "ready", "phase": st.Phase, "read_only": st.ReadOnly}
	code := http.StatusOK
	if !st.Running || st.ShuttingDown {
		code = http.StatusServiceUnavailable
		body["status"] = "not ready"
		if st.Reason != "" {
			body["reason"] = st.Reason
		}
		if st.Phase == "replaying" {
			share := 0.0
			if st.Replay.TotalBytes > 0 {
				share = float64(st.Replay.DoneBytes) / float64(st.Replay.TotalBytes)
			}
			body["replay"] = map[string]any{"done_bytes": st.Replay.DoneBytes, "total_bytes": st.Replay.TotalBytes, "share": share}
		}
	}
	writeJSON(w, code, body)
}

func (s *Server) status(b Bookie) status {
	out := status{Version: s.o.Version, Bookies: len(s.o.Bookies)}
	if b.State != nil {
		st := b.State.State()
		out.Bookie = &st
	}
	if b.Disks != nil {
		out.Disks = b.Disks.Disks()
	}
	if b.Journal != nil {
		out.Marks = b.Journal.Marks()
	}
	if b.GC != nil {
		out.GC = b.GC.Details()
	}
	return out
}

// gcV2Routes adds the paths of the garbage collector.
func gcV2Routes(g GCView, t tree) {
	post := func(path string, h handler) {
		t[path] = endpoint{methods: map[string]handler{http.MethodPost: h}, changes: map[string]bool{http.MethodPost: true}}
	}
	done := func(w http.ResponseWriter, what string, err error) {
		if err != nil {
			problem(w, http.StatusConflict, err.Error())
			return
		}
		writeJSON(w, http.StatusAccepted, map[string]bool{what: true})
	}
	withKinds := func(what string, do func(major, minor bool) error) handler {
		return func(w http.ResponseWriter, r *http.Request) {
			major, minor, err := twoBools(r, "major", "minor", true)
			if err != nil {
				problem(w, http.StatusBadRequest, err.Error())
				return
			}
			done(w, what, do(major, minor))
		}
	}
	post("/api/v2/gc", withKinds("triggered", g.Trigger))
	t["/api/v2/gc"].methods[http.MethodGet] = func(w http.ResponseWriter, _ *http.Request) {
		major, minor := g.Suspended()
		writeJSON(w, http.StatusOK, map[string]any{
			"directories": gcDetails(g), "in_force": g.InForce(), "major_suspended": major, "minor_suspended": minor, "summary": g.Summary(),
		})
	}
	post("/api/v2/gc/suspend", withKinds("suspended", g.Suspend))
	post("/api/v2/gc/resume", withKinds("resumed", g.Resume))
	post("/api/v2/gc/accept-rollback", func(w http.ResponseWriter, r *http.Request) {
		done(w, "accepted", g.AcceptRollback(r.Context()))
	})
}
