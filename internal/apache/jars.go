// Package apache has and starts Apache's software, which tests and benchmarks set ours beside: Maven fetches the jars, once, into
// .cache/interop at the root of the repository. The product does not use it.
//
// It holds no state and starts no goroutine; the processes are the caller's.
package apache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Versions that are set beside ours unless a caller asks for others.
const (
	BookKeeperVersion = "4.18.0"
	ZooKeeperVersion  = "3.9.5"
)

// ErrMissing says that a program or the jars can not be had here.
var ErrMissing = errors.New("not to be had here")

// Need reports ErrMissing, with what to install, unless the programs are on the PATH.
func Need(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is %w: install a JDK 17 (java, javac) and Maven (mvn): %w", p, ErrMissing, err)
		}
	}
	return nil
}

// Artifact names what Maven fetches.
type Artifact struct{ Group, Name, Version string }

// extras are libraries that the artifacts' own dependencies leave out.
var extras = []Artifact{{"io.dropwizard.metrics", "metrics-core", "4.2.25"}, {"org.xerial.snappy", "snappy-java", "1.1.10.5"}}

// BookKeeper returns the class path of a bookie, its shell and its client.
func BookKeeper(ctx context.Context, version string) (string, error) {
	return ClassPath(ctx, Artifact{"org.apache.bookkeeper", "bookkeeper-server", version})
}

// ZooKeeper returns the class path of a ZooKeeper server.
func ZooKeeper(ctx context.Context) (string, error) {
	return ClassPath(ctx, Artifact{"org.apache.zookeeper", "zookeeper", ZooKeeperVersion})
}

// ClassPath returns the class path of an artifact with all that it needs. The working directory is in the repository.
func ClassPath(ctx context.Context, a Artifact) (string, error) {
	if err := Need("java", "mvn"); err != nil {
		return "", err
	}
	root, err := root()
	if err != nil {
		return "", err
	}
	project := a.Group[strings.LastIndexByte(a.Group, '.')+1:]
	dir := filepath.Join(root, ".cache", "interop", "jars", project+"-"+a.Version)
	classPath := filepath.Join(dir, "*")
	if _, err := os.Stat(filepath.Join(dir, a.Name+"-"+a.Version+".jar")); err == nil {
		return classPath, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := dir + ".pom.xml"
	if err := os.WriteFile(file, []byte(pom(append([]Artifact{a}, extras...))), 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the jars of %s %s are %w: give Maven (mvn) a repository that has them, or put them into %s: %w\n%s", a.Name, a.Version, ErrMissing, dir, err, out)
	}
	return classPath, nil
}

func pom(artifacts []Artifact) string {
	var w strings.Builder
	w.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		"<groupId>bindery.test</groupId><artifactId>interop</artifactId><version>1</version><dependencies>\n")
	for _, a := range artifacts {
		fmt.Fprintf(&w, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", a.Group, a.Name, a.Version)
	}
	w.WriteString("</dependencies></project>\n")
	return w.String()
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
