package bootstrap

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// No container engine is needed: the test reads what the Dockerfile says.
func TestTheDockerfileStartsTheExecutorWithoutRightsOnItsVolume(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	steps := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, want := range []string{
		`(?m)^FROM python:3\.\d+-slim$`, `(?m)^COPY --chmod=0755 dist/executor-linux-\$\{TARGETARCH\} /usr/local/bin/executor$`, `(?m)^USER [1-9]\d*:[1-9]\d*$`, `(?m)^ENTRYPOINT \["executor"`,
		`(?m)^HEALTHCHECK .*http://127\.0\.0\.1:8000/health`, `(?m)^RUN .*pip install .*requirements\.txt`,
	} {
		if !regexp.MustCompile(want).MatchString(steps) {
			t.Errorf("the Dockerfile has no step like %s:\n%s", want, steps)
		}
	}
	volume := regexp.MustCompile(`(?m)^VOLUME (\S+)$`).FindStringSubmatch(steps)
	if volume == nil || !strings.Contains(steps, "\nWORKDIR "+volume[1]+"\n") {
		t.Errorf("the executor's folder is not on the volume %q", volume)
	}
}
