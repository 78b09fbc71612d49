// Package jvmtest lets tests run Apache's software: it has Maven fetch the jars, once, into .cache/interop at the root of the
// repository, and starts a ZooKeeper that belongs to one test. It is used by tests only, which it skips where the programs
// that it needs are missing.
//
// Nothing here is safe for concurrent use. It starts processes, which die with the test; no goroutine outlives a call.
package jvmtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fetchTimeout bounds one run of Maven.
const fetchTimeout = 12 * time.Minute

// Need skips the test unless the programs are there.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("this test runs Apache's software and needs %s on the PATH: install a JDK 17 (java, javac) and Maven (mvn): %v", p, err)
		}
	}
}

// Jars returns the class path of an artifact of Apache's, org.apache.PROJECT:ARTIFACT, with all it needs. The two libraries that
// the artifacts' own dependencies leave out are added.
func Jars(t testing.TB, project, artifact, version string) string {
	t.Helper()
	dir := project + "-" + version
	return fetch(t, dir, artifact+"-"+version, func(cache, into string) []string {
		var pom strings.Builder
		pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
			"<groupId>bindery.test</groupId><artifactId>interop</artifactId><version>1</version><dependencies>\n")
		for _, d := range [][3]string{{"org.apache." + project, artifact, version}, {"io.dropwizard.metrics", "metrics-core", "4.2.25"}, {"org.xerial.snappy", "snappy-java", "1.1.10.5"}} {
			fmt.Fprintf(&pom, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", d[0], d[1], d[2])
		}
		pom.WriteString("</dependencies></project>\n")
		file := filepath.Join(cache, dir+".pom.xml")
		require.NoError(t, os.WriteFile(file, []byte(pom.String()), 0o644))
		return []string{"-f", file, "dependency:copy-dependencies", "-DoutputDirectory=" + into}
	})
}

// Jar returns the class path of one artifact of Apache's alone, which is to stand before that of what it needs.
func Jar(t testing.TB, project, artifact, version string) string {
	t.Helper()
	return fetch(t, artifact+"-"+version, artifact+"-"+version, func(_, into string) []string {
		return []string{"dependency:copy", "-Dartifact=org.apache." + project + ":" + artifact + ":" + version, "-DoutputDirectory=" + into}
	})
}

// fetch has Maven copy jars into a folder of the cache, unless the main one is there. The folder is made whole beside its place
// and renamed, so that what an interrupted run left is not taken for it. Maven may need minutes: it is told when it begins and
// how far it is.
func fetch(t testing.TB, name, jar string, args func(cache, into string) []string) string {
	t.Helper()
	Need(t, "java", "mvn")
	cache := filepath.Join(root(t), ".cache", "interop")
	dir := filepath.Join(cache, "jars", name)
	classPath := filepath.Join(dir, "*")
	if _, err := os.Stat(filepath.Join(dir, jar+".jar")); err == nil {
		return classPath
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	into, err := os.MkdirTemp(filepath.Dir(dir), name+"-*.part")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(into) }()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "interop: "+format+"\n", args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	say("Maven fetches the jars of %s; the first time this takes minutes", name)
	begun := time.Now()
	done := make(chan struct{})
	var report sync.WaitGroup
	report.Go(func() {
		for tick := time.NewTicker(20 * time.Second); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				jars, _ := filepath.Glob(filepath.Join(into, "*.jar"))
				say("%s: %d jars are there after %v", name, len(jars), time.Since(begun).Round(time.Second))
			}
		}
	})
	cmd := exec.CommandContext(ctx, "mvn", append([]string{"-q", "-B"}, args(cache, into)...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	close(done)
	report.Wait()
	if err == nil {
		_, err = os.Stat(filepath.Join(into, jar+".jar"))
	}
	if err != nil {
		t.Skipf("the jars of %s cannot be had: give Maven (mvn) a repository that has them, or put them into %s: %v\n%s", name, dir, err, out)
	}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Rename(into, dir))
	return classPath
}

// root returns the root of the repository: tests run in a directory below it.
func root(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above the test")
		dir = parent
	}
}
