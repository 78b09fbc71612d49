package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"sort"
	"strconv"
	"strings"
)

// endpoint is what one path does.
type endpoint struct {
	methods map[string]handler
	// wrongMethod is the status for other methods; BookKeeper's paths mostly say 404.
	wrongMethod int
	changes     map[string]bool // methods that change something
}

// handler answers one call.
type handler func(w http.ResponseWriter, r *http.Request)

// tree is the paths of one bookie.
type tree map[string]endpoint

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	n := 1
	if rest, ok := strings.CutPrefix(path, "/bookies/"); ok {
		number, tail, _ := strings.Cut(rest, "/")
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 1 || n > len(s.o.Bookies) {
			problem(w, http.StatusNotFound, fmt.Sprintf("this process runs %d bookies; there is no bookie %q", len(s.o.Bookies), number))
			return
		}
		path = "/" + tail
	}
	if strings.HasPrefix(path, "/debug/pprof") || strings.HasPrefix(path, "/api/v2/debug/pprof") {
		s.profile(w, r, strings.TrimPrefix(path, "/api/v2"))
		return
	}
	e, ok := (*s.trees[n-1].Load())[path]
	if !ok {
		problem(w, http.StatusNotFound, "no such path")
		return
	}
	s.serve(w, r, e)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, e endpoint) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h, ok := e.methods[method]
	if !ok {
		h, ok = e.methods["*"]
	}
	if !ok {
		allow := make([]string, 0, len(e.methods))
		for m := range e.methods {
			allow = append(allow, m)
		}
		sort.Strings(allow)
		w.Header().Set("Allow", strings.Join(allow, ", "))
		text := "Not found method. Should be " + strings.Join(allow, " or ") + " method"
		switch e.wrongMethod {
		case 0:
			problem(w, http.StatusMethodNotAllowed, "allowed: "+strings.Join(allow, ", "))
		default:
			http.Error(w, text, e.wrongMethod)
		}
		return
	}
	if e.changes[method] {
		if may, why := s.mayChange(r); !may {
			problem(w, http.StatusForbidden, why)
			s.log.Warn("admin call refused", "method", r.Method, "path", r.URL.Path, "caller", r.RemoteAddr, "reason", why)
			return
		}
		s.log.Info("admin call", "audit", true, "method", r.Method, "path", r.URL.Path, "caller", r.RemoteAddr)
	}
	r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	h(w, r.WithContext(ctx))
}

// profile serves net/http/pprof under the rule of changing calls: a profile costs and shows what runs.
func (s *Server) profile(w http.ResponseWriter, r *http.Request, path string) {
	if may, why := s.mayChange(r); !may {
		problem(w, http.StatusForbidden, why)
		return
	}
	switch name := strings.Trim(strings.TrimPrefix(path, "/debug/pprof"), "/"); name {
	case "":
		pprof.Index(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Handler(name).ServeHTTP(w, r)
	}
}

// problem writes an RFC 9457 body.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type":   "about:blank",
		"title":  http.StatusText(status),
		"status": status,
		"detail": detail,
	})
}

// writeJSON writes v as BookKeeper does: pretty-printed.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		problem(w, http.StatusInternalServerError, "encode the answer: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

var errNoBody = errors.New("no request body provided")

// readBody decodes a JSON object. BookKeeper's documentation writes booleans as strings, so both forms are taken.
func readBody(r *http.Request) (map[string]any, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, errNoBody
	}
	m := map[string]any{}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w", err)
	}
	return m, nil
}

// boolField reads a boolean given as true or as "true".
func boolField(m map[string]any, key string) (value, present bool, err error) {
	v, ok := m[key]
	if !ok {
		return false, false, nil
	}
	switch b := v.(type) {
	case bool:
		return b, true, nil
	case string:
		switch b {
		case "true":
			return true, true, nil
		case "false":
			return false, true, nil
		}
	}
	return false, true, fmt.Errorf("%s is neither true nor false", key)
}
