package probe

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, content := range files {
		fs[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fs
}

func TestCgroupsAreThoseWithALimit(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []cgroup
	}{
		"version 2 in a container": {
			map[string]string{
				"proc/self/cgroup":             "0::/\n",
				"sys/fs/cgroup/memory.max":     "1000\n",
				"sys/fs/cgroup/memory.current": "700\n",
				"sys/fs/cgroup/memory.stat":    "anon 100\ninactive_file 300\nactive_file 5\n",
			},
			[]cgroup{{limit: 1000, used: 400}},
		},
		"version 2, limits at two levels": {
			map[string]string{
				"proc/self/cgroup":                 "0::/a/b\n",
				"sys/fs/cgroup/a/b/memory.max":     "500\n",
				"sys/fs/cgroup/a/b/memory.current": "100\n",
				"sys/fs/cgroup/a/memory.max":       "800\n",
				"sys/fs/cgroup/a/memory.current":   "790\n",
			},
			[]cgroup{{500, 100}, {800, 790}},
		},
		"version 1, the host's path not mounted": {
			map[string]string{
				"proc/self/cgroup":                           "4:memory:/docker/0123\n1:cpu:/docker/0123\n0::/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "1500\n",
				"sys/fs/cgroup/memory/memory.stat":           "inactive_file 1\ntotal_inactive_file 500\n",
			},
			[]cgroup{{2000, 1000}},
		},
		"more cache than use": {
			map[string]string{
				"proc/self/cgroup":             "0::/\n",
				"sys/fs/cgroup/memory.max":     "1000\n",
				"sys/fs/cgroup/memory.current": "10\n",
				"sys/fs/cgroup/memory.stat":    "inactive_file 300\n",
			},
			[]cgroup{{1000, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(test.files)
			got := limitedLevels(root).read(root)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(cgroup{})); diff != "" {
				t.Errorf("cgroups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTightestLimitCounts(t *testing.T) {
	machine := Mem{Total: 1000, Used: 400, Available: 600}
	for name, test := range map[string]struct {
		groups []cgroup
		want   Mem
	}{
		"no limit":                {nil, machine},
		"a limit below it":        {[]cgroup{{limit: 500, used: 100}}, Mem{Total: 500, Used: 100, Available: 400}},
		"the machine is fuller":   {[]cgroup{{limit: 900, used: 100}}, Mem{Total: 900, Used: 300, Available: 600}},
		"the outer one is fuller": {[]cgroup{{500, 100}, {800, 790}}, Mem{Total: 500, Used: 490, Available: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := machine.within(test.groups); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
