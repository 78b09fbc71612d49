package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a bookie that answers every view.
type fake struct {
	mu                   sync.Mutex
	state                State
	triggered            []bool
	suspMajor, suspMinor bool
	flushed              int
	refuse               error
	metrics              string
}

func (f *fake) State() State { f.mu.Lock(); defer f.mu.Unlock(); return f.state }
func (f *fake) SetReadOnly(_ context.Context, ro bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.state.ReadOnly = ro
	f.state.Reason = ""
	if ro {
		f.state.Reason = "manual"
	}
	return nil
}
func (f *fake) Disks() []Disk {
	return []Disk{
		{Path: "/l", Kind: "ledger", TotalBytes: 100, AvailableBytes: 40, UsedShare: 0.6, State: "ok"},
		{Path: "/j", Kind: "journal", TotalBytes: 10, AvailableBytes: 4, UsedShare: 0.6, State: "ok"},
	}
}
func (f *fake) Files(kind string) ([]string, error) {
	switch kind {
	case "journal":
		return []string{"1.wal", "2.wal"}, nil
	case "entrylog":
		return []string{"0.log"}, nil
	case "index":
		return nil, nil
	}
	return nil, errors.New("file_type is journal, entrylog or index")
}
func (f *fake) Marks() []Mark                        { return []Mark{{Journal: 0, Segment: 26, Offset: 4096}} }
func (f *fake) Journals() any                        { return []map[string]int{{"segments": 2}} }
func (f *fake) Details() []GCDetail                  { return []GCDetail{{MajorCompactions: 3, ReclaimableBytes: 7}} }
func (f *fake) InForce() bool                        { return len(f.triggered) > 0 }
func (f *fake) Summary() any                         { return map[string]int{"passes": len(f.triggered)} }
func (f *fake) AcceptRollback(context.Context) error { return f.refuse }
func (f *fake) Suspended() (bool, bool)              { return f.suspMajor, f.suspMinor }
func (f *fake) Trigger(major, minor bool) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.triggered = []bool{major, minor}
	return nil
}
func (f *fake) Suspend(major, minor bool) error {
	f.suspMajor, f.suspMinor = f.suspMajor || major, f.suspMinor || minor
	return nil
}
func (f *fake) Resume(major, minor bool) error {
	f.suspMajor, f.suspMinor = f.suspMajor && !major, f.suspMinor && !minor
	return nil
}
func (f *fake) Flush(context.Context) error { f.flushed++; return f.refuse }
func (f *fake) WritePrometheus(w io.Writer) { _, _ = io.WriteString(w, f.metrics) }
func (f *fake) Bookies(context.Context) ([]ClusterBookie, error) {
	return []ClusterBookie{{ID: "a:1", Hostname: "ha"}, {ID: "b:1", Hostname: "hb", ReadOnly: true}}, f.refuse
}
func (f *fake) Explicit() map[string]string { return map[string]string{"gc.interval": "15m"} }
func (f *fake) Effective() string           { return "[gc]\ninterval = \"15m\"\n" }

func (f *fake) views() Bookie {
	return Bookie{State: f, ReadOnly: f, Disks: f, Journal: f, GC: f, Flush: f, Metrics: f}
}

type process string

func (p process) WritePrometheus(w io.Writer) { _, _ = io.WriteString(w, string(p)) }

func start(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s, "http://" + s.Addr().String()
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func call(t *testing.T, method, url, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data), resp.Header
}

func running() *fake {
	return &fake{state: State{ID: "b-1", Phase: "serving", Running: true, TakesHighPriority: true}, metrics: "bindery_adds_total 3\n"}
}

func TestProbes(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}, Process: process("process_open_fds 7\n")})
	code, body, _ := call(t, "POST", base+"/heartbeat", "")
	require.Equal(t, 200, code)
	require.Equal(t, "OK\n", body)

	code, body, h := call(t, "GET", base+"/metrics", "")
	require.Equal(t, 200, code)
	require.Equal(t, "bindery_adds_total 3\nprocess_open_fds 7\n", body)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", h.Get("Content-Type"))
	code, _, _ = call(t, "POST", base+"/metrics", "")
	require.Equal(t, 403, code)

	code, body, _ = call(t, "GET", base+"/api/v1/bookie/state/", "")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"running":true,"readOnly":false,"shuttingDown":false,"availableForHighPriorityWrites":true}`, body)
	code, body, _ = call(t, "GET", base+"/api/v1/bookie/is_ready", "")
	require.Equal(t, 200, code)
	require.Equal(t, "OK", body)
	code, _, _ = call(t, "GET", base+"/api/v2/health/ready", "")
	require.Equal(t, 200, code)
	code, _, _ = call(t, "DELETE", base+"/api/v1/bookie/is_ready", "")
	require.Equal(t, 404, code, "BookKeeper says 404 to a wrong method")
	code, _, h = call(t, "DELETE", base+"/api/v2/health/ready", "")
	require.Equal(t, 405, code)
	require.Equal(t, "GET", h.Get("Allow"))
	code, _, h = call(t, "GET", base+"/api/v1/nothing", "")
	require.Equal(t, 404, code)
	require.Equal(t, "application/problem+json", h.Get("Content-Type"))
}

func TestReplayIsShown(t *testing.T) {
	f := running()
	f.state = State{ID: "b-1", Phase: "replaying", Replay: Replay{DoneBytes: 25, TotalBytes: 100}}
	_, base := start(t, Options{Bookies: []Bookie{f.views()}})
	code, body, _ := call(t, "GET", base+"/api/v2/health/live", "")
	require.Equal(t, 200, code)
	require.Contains(t, body, "live")
	code, body, _ = call(t, "GET", base+"/api/v2/health/ready", "")
	require.Equal(t, 503, code)
	var got struct {
		Status string
		Replay struct {
			DoneBytes  int64 `json:"done_bytes"`
			TotalBytes int64 `json:"total_bytes"`
			Share      float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, "not ready", got.Status)
	require.EqualValues(t, 25, got.Replay.DoneBytes)
	require.Equal(t, 0.25, got.Replay.Share)
	code, _, _ = call(t, "GET", base+"/api/v1/bookie/is_ready", "")
	require.Equal(t, 503, code)
}

func TestReadOnly(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}})
	path := base + "/api/v1/bookie/state/readonly"
	code, body, _ := call(t, "PUT", path, `{"readOnly":"true"}`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"readOnly":true,"reason":"manual"}`, body)
	code, body, _ = call(t, "PUT", path, `{"readOnly":false}`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"readOnly":false,"reason":""}`, body)
	for _, bad := range []string{"", "{}", "[1]", `{"readOnly":"maybe"}`} {
		code, _, _ = call(t, "PUT", path, bad)
		require.Equal(t, 400, code, bad)
	}
	f.refuse = errors.New("forced read-only by the command line")
	code, body, _ = call(t, "PUT", path, `{"readOnly":false}`)
	require.Equal(t, 400, code)
	require.Contains(t, body, "forced read-only")
}

func TestDisksAndMarks(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}, Cluster: f, Config: f})
	_, body, _ := call(t, "GET", base+"/api/v1/bookie/info", "")
	require.JSONEq(t, `{"freeSpace":40,"totalSpace":100}`, body, "the ledger directories count")
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/list_disk_file", "")
	require.JSONEq(t, `{"journal files":"1.wal\t2.wal","entrylog files":"0.log","index files":""}`, body)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/list_disk_file?file_type=entrylog", "")
	require.JSONEq(t, `{"entrylog files":"0.log"}`, body)
	code, _, _ := call(t, "GET", base+"/api/v1/bookie/list_disk_file?file_type=x", "")
	require.Equal(t, 404, code)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/last_log_mark", "")
	require.JSONEq(t, `{"LastLogMark: Journal Id - 26(1a.txn)":"Pos - 4096"}`, body)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/list_bookies", "")
	require.JSONEq(t, `{"a:1":null}`, body)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/list_bookies?type=ro&print_hostnames=true", "")
	require.JSONEq(t, `{"b:1":"hb"}`, body)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/list_bookies?type=all", "")
	require.JSONEq(t, `{"a:1":null,"b:1":null}`, body)
	_, body, _ = call(t, "GET", base+"/api/v1/config/server_config", "")
	require.JSONEq(t, `{"gc.interval":"15m","toml":"[gc]\ninterval = \"15m\"\n"}`, body)
	_, body, _ = call(t, "GET", base+"/api/v2/status", "")
	require.Contains(t, body, `"phase": "serving"`)
	f.refuse = errors.New("metadata store unreachable")
	code, body, _ = call(t, "GET", base+"/api/v1/bookie/list_bookies", "")
	require.Equal(t, 500, code)
	require.Contains(t, body, "unreachable")
}

func TestGC(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}})
	code, body, _ := call(t, "PUT", base+"/api/v1/bookie/gc", `{"forceMajor":true}`)
	require.Equal(t, 200, code)
	require.Contains(t, body, "Triggered GC on BookieServer: b-1")
	require.Equal(t, []bool{true, false}, f.triggered)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/gc", "")
	require.JSONEq(t, `{"is_in_force_gc":"true"}`, body)
	code, _, _ = call(t, "DELETE", base+"/api/v1/bookie/gc", "")
	require.Equal(t, 405, code)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/gc_details", "")
	require.Contains(t, body, `"majorCompactionCounter": 3`)
	code, _, _ = call(t, "PUT", base+"/api/v1/bookie/gc/suspend_compaction", "")
	require.Equal(t, 400, code)
	code, _, _ = call(t, "PUT", base+"/api/v1/bookie/gc/suspend_compaction", `{"suspendMajor":"true","suspendMinor":false}`)
	require.Equal(t, 200, code)
	_, body, _ = call(t, "GET", base+"/api/v1/bookie/gc/suspend_compaction", "")
	require.JSONEq(t, `{"isMajorGcSuspended":"true","isMinorGcSuspended":"false"}`, body)
	code, _, _ = call(t, "PUT", base+"/api/v1/bookie/gc/resume_compaction", `{"resumeMajor":true}`)
	require.Equal(t, 200, code)
	require.False(t, f.suspMajor)
	code, _, _ = call(t, "POST", base+"/api/v2/gc", "")
	require.Equal(t, 202, code)
	f.refuse = errors.New("a pass is under way")
	code, body, _ = call(t, "POST", base+"/api/v2/gc", `{"major":true}`)
	require.Equal(t, 409, code)
	require.Contains(t, body, "a pass is under way")
	code, _, _ = call(t, "POST", base+"/api/v2/flush", "")
	require.Equal(t, 409, code)
	f.refuse = nil
	code, _, _ = call(t, "POST", base+"/api/v2/flush", "")
	require.Equal(t, 200, code)
	require.Equal(t, 2, f.flushed)
}

func TestGCTyped(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}})
	code, _, _ := call(t, "POST", base+"/api/v2/gc/suspend", `{"major":true,"minor":true}`)
	require.Equal(t, 202, code)
	_, body, _ := call(t, "GET", base+"/api/v2/gc", "")
	require.Contains(t, body, `"major_suspended": true`)
	require.Contains(t, body, `"minor_suspended": true`)
	require.Contains(t, body, `"passes": 0`)
	code, _, _ = call(t, "POST", base+"/api/v2/gc/resume", `{"minor":true}`)
	require.Equal(t, 202, code)
	major, minor := f.Suspended()
	require.True(t, major)
	require.False(t, minor)
	code, _, _ = call(t, "POST", base+"/api/v2/gc/accept-rollback", "")
	require.Equal(t, 202, code)
	f.refuse = errors.New("the store is not reachable")
	code, body, _ = call(t, "POST", base+"/api/v2/gc/accept-rollback", "")
	require.Equal(t, 409, code)
	require.Contains(t, body, "the store is not reachable")
	code, _, _ = call(t, "GET", base+"/api/v2/gc/suspend", "")
	require.Equal(t, 405, code)
}

func TestSeveralBookies(t *testing.T) {
	a, b := running(), running()
	b.state.ID, b.metrics = "b-2", "other 1\n"
	_, base := start(t, Options{Bookies: []Bookie{a.views(), b.views()}, Process: process("process 1\n")})
	_, body, _ := call(t, "GET", base+"/bookies/2/metrics", "")
	require.Equal(t, "other 1\n", body)
	_, body, _ = call(t, "GET", base+"/bookies/1/metrics", "")
	require.Equal(t, "bindery_adds_total 3\nprocess 1\n", body)
	call(t, "PUT", base+"/bookies/2/api/v1/bookie/state/readonly", `{"readOnly":true}`)
	require.True(t, b.State().ReadOnly)
	require.False(t, a.State().ReadOnly)
	code, body, _ := call(t, "GET", base+"/bookies/3/metrics", "")
	require.Equal(t, 404, code)
	require.Contains(t, body, "runs 2 bookies")
}

func TestWhoMayChange(t *testing.T) {
	f := running()
	s, base := start(t, Options{Bookies: []Bookie{f.views()}})
	path := base + "/api/v1/bookie/state/readonly"
	for _, header := range [][]string{{"Origin", "http://evil.example"}, {"Host", "evil.example"}} {
		code, body, _ := call(t, "PUT", path, `{"readOnly":true}`, header...)
		require.Equal(t, 403, code)
		require.Contains(t, body, "web page")
	}
	require.False(t, f.State().ReadOnly)
	code, _, _ := call(t, "GET", base+"/debug/pprof/", "", "Host", "evil.example")
	require.Equal(t, 403, code)
	code, body, _ := call(t, "GET", base+"/debug/pprof/goroutine?debug=1", "")
	require.Equal(t, 200, code)
	require.Contains(t, body, "goroutine profile")

	r := func(remote string) bool {
		may, _ := s.mayChange(&http.Request{RemoteAddr: remote, Host: "localhost:8000", Header: http.Header{}})
		return may
	}
	require.True(t, r("127.0.0.1:5"))
	require.True(t, r("[::1]:5"))
	require.True(t, r("[::ffff:127.0.0.1]:5"))
	require.False(t, r("10.0.0.1:5"))
	require.False(t, r("nonsense"))
}

func TestToken(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}, Token: "s3cret"})
	path := base + "/api/v1/bookie/state/readonly"
	code, _, _ := call(t, "PUT", path, `{"readOnly":true}`)
	require.Equal(t, 403, code)
	code, _, _ = call(t, "PUT", path, `{"readOnly":true}`, "Authorization", "Bearer wrong")
	require.Equal(t, 403, code)
	require.False(t, f.State().ReadOnly)
	code, _, _ = call(t, "PUT", path, `{"readOnly":true}`, "Authorization", "Bearer s3cret")
	require.Equal(t, 200, code)
	code, _, _ = call(t, "GET", path, "")
	require.Equal(t, 200, code, "reading stays open")
}

func TestMetadataOnlyProcess(t *testing.T) {
	_, base := start(t, Options{Version: "v1"})
	code, _, _ := call(t, "GET", base+"/api/v2/health/ready", "")
	require.Equal(t, 200, code)
	code, _, _ = call(t, "GET", base+"/api/v1/bookie/state", "")
	require.Equal(t, 404, code)
	_, body, _ := call(t, "GET", base+"/api/v2/status", "")
	require.JSONEq(t, `{"version":"v1","bookies_in_process":0}`, body)
}

type tier struct {
	after int64
	limit int
	err   error
}

func (f *tier) Offload(_ context.Context, after int64, limit int) (any, error) {
	f.after, f.limit = after, limit
	return map[string]int{"ledgers": 3}, f.err
}

func TestOffload(t *testing.T) {
	f := &tier{}
	_, base := start(t, Options{Offload: f})
	code, body, _ := call(t, "GET", base+"/api/v2/offload", "")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"ledgers":3}`, body)
	require.Equal(t, tier{after: -1, limit: offloadLimit}, *f)
	code, _, _ = call(t, "GET", base+"/api/v2/offload?after=7&limit=5", "")
	require.Equal(t, 200, code)
	require.Equal(t, tier{after: 7, limit: 5}, *f)
	for _, query := range []string{"after=x", "after=-1", "limit=0", "limit=many"} {
		code, body, _ = call(t, "GET", base+"/api/v2/offload?"+query, "")
		require.Equal(t, 400, code, query)
		require.Contains(t, body, "after is a ledger id")
	}
	f.err = fmt.Errorf("%w: offload", ErrNoRole)
	code, body, _ = call(t, "GET", base+"/api/v2/offload", "")
	require.Equal(t, 404, code)
	require.Contains(t, body, "does not have that role: offload")
	f.err = errors.New("the metadata store is not reachable")
	code, _, _ = call(t, "GET", base+"/api/v2/offload", "")
	require.Equal(t, 503, code)
	_, base = start(t, Options{})
	code, _, _ = call(t, "GET", base+"/api/v2/offload", "")
	require.Equal(t, 404, code)
}

func TestLargeBodyIsRefused(t *testing.T) {
	f := running()
	_, base := start(t, Options{Bookies: []Bookie{f.views()}})
	code, _, _ := call(t, "PUT", base+"/api/v1/bookie/state/readonly", `{"x":"`+strings.Repeat("a", bodyBytesMax)+`"}`)
	require.Equal(t, 400, code)
}

func TestPortInUse(t *testing.T) {
	s, _ := start(t, Options{})
	_, err := Listen(t.Context(), s.Addr().String(), Options{})
	require.ErrorContains(t, err, "address already in use")
}

func TestBookieThatComesLater(t *testing.T) {
	f := running()
	s, base := start(t, Options{Bookies: []Bookie{{State: f}}})
	code, _, _ := call(t, "GET", base+"/api/v1/bookie/info", "")
	require.Equal(t, 404, code)
	s.SetBookie(0, f.views())
	code, _, _ = call(t, "GET", base+"/api/v1/bookie/info", "")
	require.Equal(t, 200, code)
}
