package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// bookieRoutes is the tree of one bookie. Paths and bodies under /api/v1 are BookKeeper's.
func (s *Server) bookieRoutes(b Bookie, first bool) tree {
	t := tree{
		"/heartbeat": {methods: map[string]handler{"*": func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "OK\n") }}},
		"/metrics": {
			methods:     map[string]handler{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) { s.metrics(w, b, first) }},
			wrongMethod: http.StatusForbidden,
		},
	}
	get := func(path string, h handler) {
		t["/api/v1"+path] = endpoint{methods: map[string]handler{http.MethodGet: h}, wrongMethod: http.StatusNotFound}
	}
	getPut := func(path string, status int, g, p handler) {
		m := map[string]handler{http.MethodPut: p}
		if g != nil {
			m[http.MethodGet] = g
		}
		t["/api/v1"+path] = endpoint{methods: m, wrongMethod: status, changes: map[string]bool{http.MethodPut: true}}
	}
	if s.o.Config != nil {
		get("/config/server_config", func(w http.ResponseWriter, _ *http.Request) {
			m := s.o.Config.Explicit()
			m["toml"] = s.o.Config.Effective()
			writeJSON(w, http.StatusOK, m)
		})
	}
	if s.o.Cluster != nil {
		get("/bookie/list_bookies", s.listBookies)
	}
	if b.State != nil {
		get("/bookie/state", func(w http.ResponseWriter, _ *http.Request) {
			st := b.State.State()
			writeJSON(w, http.StatusOK, map[string]bool{
				"running": st.Running, "readOnly": st.ReadOnly, "shuttingDown": st.ShuttingDown,
				"availableForHighPriorityWrites": st.TakesHighPriority,
			})
		})
		get("/bookie/is_ready", func(w http.ResponseWriter, _ *http.Request) {
			if st := b.State.State(); !st.Running || st.ShuttingDown {
				writeText(w, http.StatusServiceUnavailable, "Bookie is not fully started yet")
				return
			}
			writeText(w, http.StatusOK, "OK")
		})
		readOnlyBody := func(w http.ResponseWriter) {
			st := b.State.State()
			writeJSON(w, http.StatusOK, map[string]any{"readOnly": st.ReadOnly, "reason": st.Reason})
		}
		g := func(w http.ResponseWriter, _ *http.Request) { readOnlyBody(w) }
		if b.ReadOnly != nil {
			getPut("/bookie/state/readonly", http.StatusNotFound, g, func(w http.ResponseWriter, r *http.Request) {
				m, err := readBody(r)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				want, present, err := boolField(m, "readOnly")
				if err == nil && !present {
					err = fmt.Errorf("the body has no field readOnly")
				}
				if err == nil {
					err = b.ReadOnly.SetReadOnly(r.Context(), want)
				}
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				readOnlyBody(w)
			})
		} else {
			get("/bookie/state/readonly", g)
		}
	}
	s.diskRoutes(b, get)
	s.gcRoutes(b, get, getPut)
	s.v2Routes(b, t)
	return t
}

func (s *Server) metrics(w http.ResponseWriter, b Bookie, first bool) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if b.Metrics != nil {
		b.Metrics.WritePrometheus(w)
	}
	if first && s.o.Process != nil {
		s.o.Process.WritePrometheus(w)
	}
}

func (s *Server) listBookies(w http.ResponseWriter, r *http.Request) {
	kind := r.URL.Query().Get("type")
	switch kind {
	case "", "rw", "ro", "all":
	default:
		http.Error(w, "type is rw, ro or all", http.StatusBadRequest)
		return
	}
	list, err := s.o.Cluster.Bookies(r.Context())
	if err != nil {
		http.Error(w, "list bookies: "+err.Error(), http.StatusInternalServerError)
		return
	}
	names := r.URL.Query().Get("print_hostnames") == "true"
	out := map[string]any{}
	for _, b := range list {
		if kind == "all" || b.ReadOnly == (kind == "ro") {
			out[b.ID] = nil
			if names {
				out[b.ID] = b.Hostname
			}
		}
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) diskRoutes(b Bookie, get func(string, handler)) {
	if b.Disks != nil {
		get("/bookie/info", func(w http.ResponseWriter, _ *http.Request) {
			var free, total int64
			for _, d := range b.Disks.Disks() {
				if d.Kind == "ledger" {
					free += d.AvailableBytes
					total += d.TotalBytes
				}
			}
			writeJSON(w, http.StatusOK, map[string]int64{"freeSpace": free, "totalSpace": total})
		})
		get("/bookie/list_disk_file", func(w http.ResponseWriter, r *http.Request) {
			kinds := []string{"journal", "entrylog", "index"}
			if k := r.URL.Query().Get("file_type"); k != "" {
				kinds = []string{k}
			}
			out := map[string]string{}
			for _, k := range kinds {
				files, err := b.Disks.Files(k)
				if err != nil {
					http.Error(w, err.Error(), http.StatusNotFound)
					return
				}
				out[k+" files"] = strings.Join(files, "\t")
			}
			writeJSON(w, http.StatusOK, out)
		})
	}
	if b.Journal != nil {
		get("/bookie/last_log_mark", func(w http.ResponseWriter, _ *http.Request) {
			out := map[string]string{}
			for _, m := range b.Journal.Marks() {
				out[fmt.Sprintf("LastLogMark: Journal Id - %d(%x.txn)", m.Segment, m.Segment)] = fmt.Sprintf("Pos - %d", m.Offset)
			}
			writeJSON(w, http.StatusOK, out)
		})
	}
}

func (s *Server) gcRoutes(b Bookie, get func(string, handler), getPut func(string, int, handler, handler)) {
	if b.GC == nil {
		return
	}
	getPut("/bookie/gc", http.StatusMethodNotAllowed,
		func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, map[string]string{"is_in_force_gc": fmt.Sprint(b.GC.InForce())})
		},
		func(w http.ResponseWriter, r *http.Request) {
			major, minor, err := twoBools(r, "forceMajor", "forceMinor", true)
			if err == nil {
				err = b.GC.Trigger(major, minor)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			writeJSON(w, http.StatusOK, "Triggered GC on BookieServer: "+b.State.State().ID)
		})
	get("/bookie/gc_details", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, gcDetails(b.GC)) })
	getPut("/bookie/gc/suspend_compaction", http.StatusNotFound,
		func(w http.ResponseWriter, _ *http.Request) {
			major, minor := b.GC.Suspended()
			writeJSON(w, http.StatusOK, map[string]string{"isMajorGcSuspended": fmt.Sprint(major), "isMinorGcSuspended": fmt.Sprint(minor)})
		},
		func(w http.ResponseWriter, r *http.Request) {
			major, minor, err := twoBools(r, "suspendMajor", "suspendMinor", false)
			if err == nil {
				err = b.GC.Suspend(major, minor)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			writeJSON(w, http.StatusOK, "Suspend majorGC and minorGC as requested on BookieServer: "+b.State.State().ID)
		})
	getPut("/bookie/gc/resume_compaction", http.StatusNotFound, nil,
		func(w http.ResponseWriter, r *http.Request) {
			major, minor, err := twoBools(r, "resumeMajor", "resumeMinor", false)
			if err == nil {
				err = b.GC.Resume(major, minor)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			writeJSON(w, http.StatusOK, "Resume majorGC and minorGC as requested on BookieServer: "+b.State.State().ID)
		})
}

// twoBools reads a body with two optional booleans, of which one has to be there unless empty bodies are allowed.
func twoBools(r *http.Request, a, b string, emptyAllowed bool) (bool, bool, error) {
	m, err := readBody(r)
	if errors.Is(err, errNoBody) && emptyAllowed {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	va, hasA, err := boolField(m, a)
	if err != nil {
		return false, false, err
	}
	vb, hasB, err := boolField(m, b)
	if err != nil {
		return false, false, err
	}
	if !hasA && !hasB && !emptyAllowed {
		return false, false, fmt.Errorf("the body has neither %s nor %s", a, b)
	}
	return va, vb, nil
}

func gcDetails(g GCView) []GCDetail {
	d := g.Details()
	if d == nil {
		d = []GCDetail{}
	}
	return d
}
