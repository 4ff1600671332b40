package probe

import (
	"context"
	"io/fs"
	"time"

	"github.com/shirou/gopsutil/v3/host"
	"github.com/shirou/gopsutil/v3/process"

	"colabrelay/shared/contract"
)

// Names of platforms.
const (
	colab      = "colab"
	kaggle     = "kaggle"
	lightning  = "lightning"
	sageMaker  = "sagemaker"
	codespaces = "codespaces"
	runPod     = "runpod"
	container  = "container"
	machine    = "machine"
)

// Platform detects the platform from the environment and the files under root. It sets only
// Name and Container. Kaggle is checked first, because google.colab can be imported there
// too, and containers last, because most platforms run in one.
func Platform(getenv func(string) string, root fs.FS) contract.Platform {
	has := func(name string) bool { _, err := fs.Stat(root, name); return err == nil }
	contained := has(".dockerenv") || has("run/.containerenv") || getenv("KUBERNETES_SERVICE_HOST") != ""
	is := func(name string) contract.Platform {
		return contract.Platform{Name: name, Container: contained}
	}
	switch {
	case getenv("KAGGLE_KERNEL_RUN_TYPE") != "":
		return is(kaggle)
	case has("var/colab/hostname") || getenv("COLAB_RELEASE_TAG") != "":
		return is(colab)
	case getenv("LIGHTNING_CLOUDSPACE_HOST") != "":
		return is(lightning)
	case getenv("SAGEMAKER_APP_TYPE") != "" || has("home/studio-lab-user"):
		return is(sageMaker)
	case getenv("CODESPACES") == "true":
		return is(codespaces)
	case getenv("RUNPOD_POD_ID") != "":
		return is(runPod)
	case contained:
		return is(container)
	}
	return is(machine)
}

func (p *Prober) platform(ctx context.Context) contract.Platform {
	out := Platform(p.cfg.Getenv, p.root)
	if info, err := host.InfoWithContext(ctx); err == nil {
		out.Hostname, out.Kernel, out.Architecture = info.Hostname, info.KernelVersion, info.KernelArch
		out.OS = info.OS
		if info.Platform != "" {
			out.OS = info.Platform + " " + info.PlatformVersion
		}
	}
	return out
}

// sessionStart is when the first process of the machine or container started. If that can't
// be determined, it is when the executor started.
func sessionStart(ctx context.Context, executor time.Time) time.Time {
	first, err := process.NewProcessWithContext(ctx, 1)
	if err != nil {
		return executor
	}
	ms, err := first.CreateTimeWithContext(ctx)
	if start := time.UnixMilli(ms); err == nil && start.Before(executor) {
		return start
	}
	return executor
}
