package apache

import (
	"context"
	"os/exec"
	"strings"
)

// opened are packages of the JDK that Apache's software reaches into.
var opened = []string{
	"java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.io", "java.base/java.util.zip", "java.base/java.lang", "java.base/java.net",
	"java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.management/sun.management", "jdk.management/com.sun.management.internal",
}

// Java returns a command that runs a main class with the given flags for the virtual machine. On Linux it dies with this process.
func Java(ctx context.Context, classPath []string, flags []string, main string, args ...string) *exec.Cmd {
	var all []string
	for _, p := range opened {
		all = append(all, "--add-opens", p+"=ALL-UNNAMED")
	}
	all = append(all, "-Dio.netty.tryReflectionSetAccessible=true")
	all = append(all, flags...)
	all = append(all, "-cp", strings.Join(classPath, ":"), main)
	cmd := exec.CommandContext(ctx, "java", append(all, args...)...)
	dieWithParent(cmd)
	return cmd
}
