package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/spf13/cobra"
)

const (
	statusTimeout  = 10 * time.Second
	statusBytesMax = 4 << 20
	statusEvery    = 2 * time.Second
)

type statusOptions struct {
	server string
	watch  bool
	output outputFormat
}

func newStatusCommand() *cobra.Command {
	var o statusOptions
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what the bookies of a process are doing",
		Long: "Asks the admin server of a running process, of the standalone in ./" + defaultDataDir + " unless --server names another.\n" +
			"Exit code 5 if a bookie does not serve or is read-only.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	c.Flags().StringVar(&o.server, "server", "", "admin server, host:port")
	c.Flags().BoolVar(&o.watch, "watch", false, "show again every two seconds")
	addOutputFlag(c, &o.output)
	return c
}

// bookieStatus is the part of /api/v2/status that is shown.
type bookieStatus struct {
	Version string           `json:"version"`
	Bookie  *admin.State     `json:"bookie,omitempty"`
	Disks   []admin.Disk     `json:"disks,omitempty"`
	GC      []admin.GCDetail `json:"gc,omitempty"`
	Bookies int              `json:"bookies_in_process"`
}

func (o *statusOptions) run(c *cobra.Command) error {
	base, err := o.base()
	if err != nil {
		return err
	}
	for {
		list, err := fetchStatus(c.Context(), base)
		if err != nil {
			return err
		}
		healthy, err := o.print(c.OutOrStdout(), list)
		if err != nil {
			return err
		}
		if !o.watch {
			if !healthy {
				return exit(exitFindings, nil)
			}
			return nil
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-time.After(statusEvery):
		}
	}
}

func (o *statusOptions) base() (string, error) {
	if o.server != "" {
		if strings.Contains(o.server, "://") {
			return strings.TrimSuffix(o.server, "/"), nil
		}
		return "http://" + o.server, nil
	}
	e, err := readEndpoints(defaultDataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", exit(exitUsage, fmt.Errorf("no process is named: give --server host:port, or run in the directory of a standalone (no ./%s/%s here)", defaultDataDir, endpointsName))
	}
	return e.Admin, err
}

// fetchStatus asks for the first bookie, which says how many there are, and then for the others.
func fetchStatus(ctx context.Context, base string) ([]bookieStatus, error) {
	var first bookieStatus
	if err := getJSON(ctx, base+"/api/v2/status", &first); err != nil {
		return nil, err
	}
	list := []bookieStatus{first}
	for n := 2; n <= min(first.Bookies, bookiesMax); n++ {
		var s bookieStatus
		if err := getJSON(ctx, fmt.Sprintf("%s/bookies/%d/api/v2/status", base, n), &s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func getJSON(ctx context.Context, address string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return unanswered(req, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, statusBytesMax))
	if err != nil {
		return fmt.Errorf("ask the admin server: %w", err)
	}
	if resp.StatusCode == http.StatusNotFound && strings.Contains(address, "/bookies/") {
		return noSuchBookieThere(ctx, req)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("an HTTP server answers at %s, but not the admin server of a bindery process (http.listen): it knows no %s", req.URL.Host, req.URL.Path)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the admin server: %s answered %s", address, resp.Status)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("ask the admin server: %s did not answer as a bindery process does: %w", address, err)
	}
	return nil
}

// unanswered words a request that got no answer. What the library says of addresses and sockets helps nobody here.
func unanswered(req *http.Request, err error) error {
	if req.Context().Err() != nil && errors.Is(req.Context().Err(), context.Canceled) {
		return errInterrupted
	}
	why := "it does not answer in time"
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "nothing listens there"
	case !errors.Is(err, context.DeadlineExceeded):
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		why = whoAnswers(req, err)
	}
	return fmt.Errorf("no bindery answers at %s, the host:port of its http.listen: %s", req.URL.Host, why)
}

// whoAnswers says what listens at an address that did not answer as a server of HTTP does.
func whoAnswers(req *http.Request, err error) string {
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return err.Error()
	case speaksBookie(req.Context(), req.URL.Host):
		return "a bookie's port (bookie.listen) answers there, which serves ledgers; the admin server has a port of its own, 8000 unless it is set"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "what listens there hung up on an HTTP request"
	}
	return fmt.Sprintf("what listens there does not speak HTTP (%v)", err)
}

// speaksBookie reports whether a bookie, of any kind, answers at an address.
func speaksBookie(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ask, err := wire.AppendRequest(nil, &wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpBookieInfo, TxnID: 1})
	if err != nil {
		return false
	}
	if _, err := nc.Write(ask); err != nil {
		return false
	}
	frame := make([]byte, wire.LengthSize, 4<<10)
	if _, err := io.ReadFull(nc, frame); err != nil {
		return false
	}
	size, err := wire.FrameSize(frame, cap(frame))
	if err != nil {
		return false
	}
	packet := frame[wire.LengthSize:size]
	if _, err := io.ReadFull(nc, packet); err != nil {
		return false
	}
	var answer wire.Response
	return wire.DecodeResponse(wire.V3, packet, &answer) == nil && answer.Op == wire.OpBookieInfo
}

// noSuchBookieThere words a request about a bookie that the process does not have.
func noSuchBookieThere(ctx context.Context, req *http.Request) error {
	var first bookieStatus
	if err := getJSON(ctx, req.URL.Scheme+"://"+req.URL.Host+"/api/v2/status", &first); err != nil {
		return err
	}
	return exit(exitUsage, fmt.Errorf("no such bookie there: the process has %s", plural(first.Bookies, "bookie")))
}

// print shows the bookies and says whether all of them take writes.
func (o *statusOptions) print(w io.Writer, list []bookieStatus) (bool, error) {
	healthy := true
	rows := [][]string{}
	for _, s := range list {
		if s.Bookie == nil {
			continue
		}
		healthy = healthy && s.Bookie.Running && !s.Bookie.ReadOnly
		state := s.Bookie.Phase
		if s.Bookie.Phase == "replaying" && s.Bookie.Replay.TotalBytes > 0 {
			state = fmt.Sprintf("replaying %d %%", 100*s.Bookie.Replay.DoneBytes/s.Bookie.Replay.TotalBytes)
		}
		writes := "yes"
		if s.Bookie.ReadOnly || !s.Bookie.Running {
			writes = "no"
		}
		used, free := "-", "-"
		for _, d := range s.Disks {
			if d.Kind == "ledger" {
				used, free = fmt.Sprintf("%.0f %%", 100*d.UsedShare), humanBytes(d.AvailableBytes)
			}
		}
		rows = append(rows, []string{s.Bookie.ID, state, writes, used, free, s.Bookie.Reason})
	}
	if o.output == outputJSON {
		return healthy, printJSON(w, list)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "the process runs no bookie")
		return true, err
	}
	return healthy, printTable(w, []string{"BOOKIE", "STATE", "WRITABLE", ">DISK USED", ">FREE", "REASON"}, rows)
}
