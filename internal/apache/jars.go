// Package apache has and starts Apache's software, which tests and benchmarks set ours beside: Maven fetches the jars, once, into
// .cache/interop at the root of the repository. The product does not use it.
//
// No goroutine outlives a call; the processes are the caller's.
package apache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Versions that are set beside ours unless a caller asks for others.
const (
	BookKeeperVersion = "4.18.0"
	ZooKeeperVersion  = "3.9.5"
	// PerfVersion is of Apache's own load generator, which is published less often.
	PerfVersion = "4.17.3"
)

// fetchTimeout bounds one run of Maven, and fetchReport is how often it is told how far it is.
const (
	fetchTimeout = 12 * time.Minute
	fetchReport  = 20 * time.Second
)

// ErrMissing says that a program or the jars can not be had here.
var ErrMissing = errors.New("not to be had here")

// Need reports ErrMissing, with what to install, unless the programs are on the PATH.
func Need(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s, which Apache's software needs on the PATH, is %w: install a JDK 17 (java, javac) and Maven (mvn): %w", p, ErrMissing, err)
		}
	}
	return nil
}

// Artifact names what Maven fetches: org.apache.PROJECT:NAME:VERSION.
type Artifact struct{ Project, Name, Version string }

// BookKeeper is a bookie, its shell and its client.
func BookKeeper(version string) Artifact { return Artifact{"bookkeeper", "bookkeeper-server", version} }

// Perf is Apache's own load generator, which writes and reads logs of its DistributedLog on bookies.
func Perf() Artifact { return Artifact{"bookkeeper", "bookkeeper-perf", PerfVersion} }

// ZooKeeper is a ZooKeeper server.
func ZooKeeper() Artifact { return Artifact{"zookeeper", "zookeeper", ZooKeeperVersion} }

// ClassPath returns the class path of an artifact with all that it needs. The two libraries that the artifacts' own dependencies
// leave out are added. The working directory is in the repository.
func ClassPath(ctx context.Context, a Artifact) (string, error) {
	name := a.Project + "-" + a.Version
	if a == Perf() { // not beside a bookie's
		name = a.Name + "-" + a.Version
	}
	return fetch(ctx, name, a.Name+"-"+a.Version, func(cache, into string) ([]string, error) {
		var pom strings.Builder
		pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
			"<groupId>bindery.test</groupId><artifactId>interop</artifactId><version>1</version><dependencies>\n")
		for _, d := range [][3]string{{"org.apache." + a.Project, a.Name, a.Version}, {"io.dropwizard.metrics", "metrics-core", "4.2.25"}, {"org.xerial.snappy", "snappy-java", "1.1.10.5"}} {
			fmt.Fprintf(&pom, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", d[0], d[1], d[2])
		}
		pom.WriteString("</dependencies></project>\n")
		file := filepath.Join(cache, name+".pom.xml")
		return []string{"-f", file, "dependency:copy-dependencies", "-DoutputDirectory=" + into}, os.WriteFile(file, []byte(pom.String()), 0o644)
	})
}

// Alone returns the class path of one artifact alone, which is to stand before that of what it needs.
func Alone(ctx context.Context, a Artifact) (string, error) {
	jar := a.Name + "-" + a.Version
	return fetch(ctx, jar, jar, func(_, into string) ([]string, error) {
		return []string{"dependency:copy", "-Dartifact=org.apache." + a.Project + ":" + a.Name + ":" + a.Version, "-DoutputDirectory=" + into}, nil
	})
}

// fetch has Maven copy jars into a folder of the cache, unless the main one is there. The folder is made whole beside its place
// and renamed, so that what an interrupted run left is not taken for it.
func fetch(ctx context.Context, name, jar string, args func(cache, into string) ([]string, error)) (classPath string, err error) {
	if err := Need("java", "mvn"); err != nil {
		return "", err
	}
	root, err := root()
	if err != nil {
		return "", err
	}
	cache := filepath.Join(root, ".cache", "interop")
	dir := filepath.Join(cache, "jars", name)
	classPath = filepath.Join(dir, "*")
	if _, err := os.Stat(filepath.Join(dir, jar+".jar")); err == nil {
		return classPath, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	into, err := os.MkdirTemp(filepath.Dir(dir), name+"-*.part")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(into) }()
	list, err := args(cache, into)
	if err != nil {
		return "", err
	}
	out, err := maven(ctx, name, into, list)
	if err == nil {
		_, err = os.Stat(filepath.Join(into, jar+".jar"))
	}
	if err != nil {
		return "", fmt.Errorf("the jars of %s are %w: give Maven (mvn) a repository that has them, or put them into %s: %w\n%s", name, ErrMissing, dir, err, out)
	}
	return classPath, errors.Join(os.RemoveAll(dir), os.Rename(into, dir))
}

// maven runs it. It may need minutes: standard error is told when it begins and how far it is.
func maven(ctx context.Context, name, into string, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fmt.Fprintf(os.Stderr, "Maven fetches the jars of %s; the first time this takes minutes\n", name)
	begun := time.Now()
	done := make(chan struct{})
	var report sync.WaitGroup
	report.Go(func() {
		tick := time.NewTicker(fetchReport)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				jars, _ := filepath.Glob(filepath.Join(into, "*.jar"))
				fmt.Fprintf(os.Stderr, "%s: %d jars are there after %v\n", name, len(jars), time.Since(begun).Round(time.Second))
			}
		}
	})
	cmd := exec.CommandContext(ctx, "mvn", append([]string{"-q", "-B"}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	close(done)
	report.Wait()
	return out, err
}

// root returns the root of the repository that the working directory is in.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory: run this in the repository")
		}
		dir = parent
	}
}
