package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"colabrelay/executor/interpreter"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// pythonLimit is how long listing the packages may take. A thousand packages on a cold disk
// take seconds.
const pythonLimit = 10 * time.Second

// pythonFacts caches the answer of packages.py until a folder changes that it searched.
type pythonFacts struct {
	mu      sync.Mutex
	facts   pythonAnswer
	changed map[string]time.Time
}

type pythonAnswer struct {
	Python   contract.Python   `json:"python"`
	Packages map[string]string `json:"packages"`
	Paths    []string          `json:"paths"`
}

// pythonAndPackages has only the interpreter's path if Python can't be queried.
func (p *Prober) pythonAndPackages(ctx context.Context) (contract.Python, map[string]string) {
	f := &p.python
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil || !maps.Equal(f.changed, changeTimes(f.facts.Paths)) {
		facts, err := p.queryPython(ctx)
		if err != nil {
			return contract.Python{Executable: p.cfg.Python}, map[string]string{}
		}
		f.facts, f.changed = facts, changeTimes(facts.Paths)
	}
	return f.facts.Python, maps.Clone(f.facts.Packages)
}

func (p *Prober) queryPython(ctx context.Context) (pythonAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, pythonLimit)
	defer cancel()
	out, err := interpreter.Run(ctx, p.cfg.User, p.cfg.Python, kernelpy.Script("packages"), pythonEnvironment(p.cfg.Getenv))
	if err != nil {
		return pythonAnswer{}, fmt.Errorf("listing the packages of %q: %w", p.cfg.Python, err)
	}
	var answer pythonAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		return pythonAnswer{}, fmt.Errorf("reading the packages of %q: %w", p.cfg.Python, err)
	}
	return answer, nil
}

// pythonEnvironment is the variables by which the kernel finds its packages. It must contain
// no secret, because installed packages may run code when the interpreter starts.
func pythonEnvironment(getenv func(string) string) []string {
	env := []string{"PYTHONIOENCODING=utf-8"}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE"} {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func changeTimes(paths []string) map[string]time.Time {
	times := make(map[string]time.Time, len(paths))
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			times[path] = info.ModTime()
		}
	}
	return times
}
