//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/apache"
	"github.com/binderylog/bindery/internal/jvmtest"
)

// Versions of Apache's software that are tried.
const (
	newBookKeeper    = "4.18.0"
	oldBookKeeper    = "4.17.3"
	pulsarBookKeeper = "4.17.2" // the one that comes with Pulsar, whose metadata drivers it is given
	pulsarVersion    = "4.0.7"
)

// pulsarJars returns the class path of Pulsar's broker.
func pulsarJars(t testing.TB) string {
	return jvmtest.Jars(t, "pulsar", "pulsar-broker", pulsarVersion)
}

// bookkeeperJars returns the class path of one version of BookKeeper.
func bookkeeperJars(t testing.TB, version string) string {
	if version == pulsarBookKeeper {
		return pulsarJars(t)
	}
	return jvmtest.Jars(t, "bookkeeper", "bookkeeper-server", version)
}

// jvm returns a command that runs a main class. It dies with the test.
func jvm(heap string, classPath []string, main string, args ...string) *exec.Cmd {
	config, err := filepath.Abs("java/log4j2.xml")
	if err != nil {
		panic(err)
	}
	return apache.Java(context.Background(), classPath, []string{
		"-Xmx" + heap, "-XX:MaxDirectMemorySize=" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + config,
		// Pulsar's drivers for metadata-store: URIs; without its jars they are passed over.
		"-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
		"-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
	}, main, args...)
}

// process is a program in the background with its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func start(t testing.TB, name string, cmd *exec.Cmd, dir string) *process {
	p := &process{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	cmd.Stderr = f
	require.NoError(t, cmd.Start(), name)
	go func() {
		_ = cmd.Wait()
		f.Close()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// terminate asks a process to end, and ends it if it does not.
func (p *process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.kill()
	}
}

// tail returns the end of the output.
func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-4000):])
}

// compile compiles our Java programs against one version of the client and returns the folder with the classes.
func compile(t testing.TB, version string) string {
	jvmtest.Need(t, "javac")
	dir := filepath.Join(work, "classes-"+version)
	if _, err := os.Stat(filepath.Join(dir, "InteropClient.class")); err == nil {
		return dir
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	out, err := exec.Command("javac", "-nowarn", "-d", dir, "-cp", bookkeeperJars(t, version), "java/InteropClient.java").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// driven is a program that is told what to do by lines.
type driven struct {
	*process
	mu      sync.Mutex
	in      io.WriteCloser
	answers chan string
}

// javaProgram is a running InteropClient.
type javaProgram struct {
	*driven
	version string
	names   int
}

// javaError is a refusal of such a program; code is that of Apache's client.
type javaError struct {
	code int
	text string
}

// Error implements error.
func (e *javaError) Error() string { return fmt.Sprintf("%s (code %d)", e.text, e.code) }

func startJava(t testing.TB, version string) *javaProgram {
	cmd := jvm("512m", []string{compile(t, version), bookkeeperJars(t, version)}, "InteropClient")
	return &javaProgram{driven: drive(t, "java-client-"+version, cmd), version: version}
}

// drive starts a program that takes commands.
func drive(t testing.TB, name string, cmd *exec.Cmd) *driven {
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	r, w := io.Pipe()
	cmd.Stdout = w
	d := &driven{in: in, answers: make(chan string, 1)}
	d.process = start(t, name, cmd, work)
	go func() {
		<-d.done
		w.Close()
	}()
	go func() {
		defer close(d.answers)
		for s := bufio.NewScanner(r); s.Scan(); {
			d.answers <- s.Text()
		}
	}()
	return d
}

// do runs one command and returns the values of its answer.
func (d *driven) do(args ...any) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = fmt.Sprint(a)
	}
	if _, err := io.WriteString(d.in, strings.Join(words, " ")+"\n"); err != nil {
		return nil, fmt.Errorf("%s has ended: %w\n%s", d.name, err, d.tail())
	}
	select {
	case line, ok := <-d.answers:
		if !ok {
			return nil, fmt.Errorf("%s has ended\n%s", d.name, d.tail())
		}
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "ok" {
			return fields[1:], nil
		}
		e := &javaError{text: strings.Join(words, " ") + ": " + line}
		if len(fields) > 1 {
			e.code, _ = strconv.Atoi(fields[1])
		}
		return nil, e
	case <-time.After(4 * time.Minute):
		return nil, fmt.Errorf("%s does not answer %s\n%s", d.name, strings.Join(words, " "), d.tail())
	}
}

func (j *javaProgram) newName(kind string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.names++
	return kind + strconv.Itoa(j.names)
}

// shell runs a command of Apache's bookie shell against a cluster.
func shell(t testing.TB, version, uri string, args ...string) (string, error) {
	conf := filepath.Join(t.TempDir(), "shell.conf")
	text := "metadataServiceUri=" + uri + "\nallowLoopback=true\njournalDirectory=" + t.TempDir() + "\nledgerDirectories=" + t.TempDir() + "\n"
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := jvm("256m", []string{bookkeeperJars(t, version)}, "org.apache.bookkeeper.bookie.BookieShell",
		append([]string{"-conf", conf}, args...)...)
	// What commands print goes through the log.
	cmd.Args = append([]string{cmd.Args[0], "-Dinterop.log=info"}, cmd.Args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	return out.String(), err
}
