package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/binderylog/bindery/internal/vfs"
)

const (
	defaultDataDir = "bindery-data"
	endpointsName  = "endpoints.json"
)

// endpoints is DATA/endpoints.json: where a running standalone can be reached. It exists while the process serves.
type endpoints struct {
	PID      int      `json:"pid"`
	Metadata string   `json:"metadata"`
	Bookies  []string `json:"bookies"`
	Admin    string   `json:"admin"`

	OffloadTargets    string `json:"offload_targets,omitempty"` // file that names the object stores of --offload-dir
	OffloadKeySource  string `json:"offload_key_source,omitempty"`
	OffloadKeyID      string `json:"offload_key_id,omitempty"`
	OffloadEncryption string `json:"offload_encryption,omitempty"`
}

// writeEndpoints renames the file into place.
func writeEndpoints(dir string, e endpoints) error {
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(vfs.OS(), filepath.Join(dir, endpointsName), append(data, '\n'))
}

func removeEndpoints(dir string) error {
	err := os.Remove(filepath.Join(dir, endpointsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readEndpoints reads the file and checks that its process lives. A kill -9 leaves the file behind.
func readEndpoints(dir string) (endpoints, error) {
	name := filepath.Join(dir, endpointsName)
	data, err := vfs.ReadFile(vfs.OS(), name)
	if err != nil {
		return endpoints{}, err
	}
	var e endpoints
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("%s is damaged: %w", name, err)
	}
	if !processAlive(e.PID) {
		return e, fmt.Errorf("%s names process %d, which is gone: start `bindery standalone --data-dir %s` again, or name another cluster with --metadata", name, e.PID, dir)
	}
	return e, nil
}

func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// metadataURI finds the cluster that a command means: the flag, the environment, the standalone of this directory.
func metadataURI(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if uri := os.Getenv("BINDERY_METADATA__URI"); uri != "" {
		return uri, nil
	}
	e, err := readEndpoints(defaultDataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", exit(exitUsage, fmt.Errorf("no cluster is named: start `bindery standalone` in this directory, give --metadata, or set BINDERY_METADATA__URI (no ./%s/%s here)", defaultDataDir, endpointsName))
	}
	if err != nil {
		return "", err
	}
	return e.Metadata, nil
}
