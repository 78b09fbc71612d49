// Package jvmtest lets tests run Apache's software (internal/apache), and skips those that need what is missing here. It starts
// a ZooKeeper that belongs to one test.
//
// Nothing here is safe for concurrent use. It starts processes, which die with the test; no goroutine outlives a call.
package jvmtest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/apache"
)

// Need skips the test unless the programs are there.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	orSkip(t, apache.Need(programs...))
}

// Jars returns the class path of an artifact of Apache's, org.apache.PROJECT:ARTIFACT, with all it needs.
func Jars(t testing.TB, project, artifact, version string) string {
	t.Helper()
	path, err := apache.ClassPath(context.Background(), apache.Artifact{Project: project, Name: artifact, Version: version})
	orSkip(t, err)
	return path
}

// Jar returns the class path of one artifact of Apache's alone, which is to stand before that of what it needs.
func Jar(t testing.TB, project, artifact, version string) string {
	t.Helper()
	path, err := apache.Alone(context.Background(), apache.Artifact{Project: project, Name: artifact, Version: version})
	orSkip(t, err)
	return path
}

// orSkip skips the test for what can not be had here, whose error says what to install, and fails it for everything else.
func orSkip(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, apache.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
}
