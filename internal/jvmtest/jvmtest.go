// Package jvmtest lets tests run Apache's software: it has Maven fetch the jars, once, into .cache/interop at the root of the
// repository, and starts a ZooKeeper that belongs to one test. It is used by tests only, which it skips where the programs
// that it needs are missing.
//
// Nothing here is safe for concurrent use. It starts processes, which die with the test, and no goroutine.
package jvmtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	Need(t, "java", "mvn")
	cache := filepath.Join(root(t), ".cache", "interop")
	dir := filepath.Join(cache, "jars", project+"-"+version)
	classPath := filepath.Join(dir, "*")
	if _, err := os.Stat(filepath.Join(dir, artifact+"-"+version+".jar")); err == nil {
		return classPath
	}
	var pom strings.Builder
	pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		"<groupId>bindery.test</groupId><artifactId>interop</artifactId><version>1</version><dependencies>\n")
	for _, d := range [][3]string{{"org.apache." + project, artifact, version}, {"io.dropwizard.metrics", "metrics-core", "4.2.25"}, {"org.xerial.snappy", "snappy-java", "1.1.10.5"}} {
		fmt.Fprintf(&pom, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", d[0], d[1], d[2])
	}
	pom.WriteString("</dependencies></project>\n")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(cache, project+"-"+version+".pom.xml")
	require.NoError(t, os.WriteFile(file, []byte(pom.String()), 0o644))
	out, err := exec.CommandContext(context.Background(), "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		t.Skipf("the jars of %s %s cannot be had: give Maven (mvn) a repository that has them, or put them into %s: %v\n%s", artifact, version, dir, err, out)
	}
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
