package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// adminCall is how a command reaches the admin server of a running process to change something.
type adminCall struct {
	status    statusOptions // the server
	bookie    int           // which one of the process; 0 and 1 are the first
	tokenFile string
	timeout   time.Duration // of one request; 0: statusTimeout
}

// addFlags adds what every such command takes; each says that it is about one bookie of the process.
func (a *adminCall) addFlags(c *cobra.Command, each bool) {
	c.Flags().StringVar(&a.status.server, "server", "", "admin server, host:port (default: the standalone's of ./"+defaultDataDir+")")
	c.Flags().StringVar(&a.tokenFile, "token-file", "", "file with the admin token")
	if each {
		c.Flags().IntVar(&a.bookie, "bookie", 1, "which bookie of the process")
	}
}

// url returns the address of a path of the chosen bookie.
func (a *adminCall) url(path string) (string, error) {
	base, err := a.status.base()
	if err != nil {
		return "", err
	}
	if a.bookie < 0 || a.bookie > bookiesMax {
		return "", exit(exitUsage, fmt.Errorf("--bookie %d: must be between 1 and %d", a.bookie, bookiesMax))
	}
	if a.bookie > 1 {
		base += fmt.Sprintf("/bookies/%d", a.bookie)
	}
	return base + path, nil
}

// bookies returns how many bookies the process has.
func (a *adminCall) bookies(ctx context.Context) (int, error) {
	base, err := a.status.base()
	if err != nil {
		return 0, err
	}
	var first bookieStatus
	if err := getJSON(ctx, base+"/api/v2/status", &first); err != nil {
		return 0, err
	}
	return max(first.Bookies, 1), nil
}

// post sends a changing request and returns the answer; the server's own words are the error.
func (a *adminCall) post(ctx context.Context, path string, body any) ([]byte, error) {
	url, err := a.url(path)
	if err != nil {
		return nil, err
	}
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	return a.do(ctx, http.MethodPost, url, data)
}

func (a *adminCall) do(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.timeout, statusTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, exit(exitUsage, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.tokenFile != "" {
		token, err := readPassword(a.tokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, unanswered(req, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, statusBytesMax))
	if err != nil {
		return nil, fmt.Errorf("ask the admin server: %w", err)
	}
	if resp.StatusCode/100 == 2 {
		return answer, nil
	}
	if resp.StatusCode == http.StatusNotFound && a.bookie > 1 {
		return nil, noSuchBookieThere(ctx, req)
	}
	var p struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(answer, &p) == nil && p.Detail != "" {
		return nil, errors.New(p.Detail)
	}
	return nil, fmt.Errorf("ask the admin server: %s answered %s: %s", url, resp.Status, bytes.TrimSpace(answer))
}
