package vm

// Rules is what people must read before they let the relay start VMs. README.md contains the
// same text, and a test compares them.
const Rules = `The relay can start and stop Colab VMs with your Google account. Read this first:

- Google's rules. Colab's FAQ lists what it forbids to users without a positive balance of compute units: remote control of a VM, such as by SSH, and using a VM mainly without the notebook page. Using an executor from your laptop is remote control. For all users, paid or not, the FAQ forbids connections to remote proxies; whether a tunnel such as ngrok or cloudflared counts as one is not said. (Read in the FAQ in October 2026; the FAQ may have changed. Decide for yourself whether your use is allowed.)
- Your account is at risk. Users have reported that Google blocked their accounts for forbidden use of Colab (googlecolab/colabtools, issues 5562 and 6035). How Google detects such use is not known. Do not use an account that you cannot afford to lose.
- VMs end. Google may end a VM at any time, and everything on it is lost. The published limits are about 12 hours without a subscription and up to 24 hours with Colab Pro+. When an idle VM ends is not published.
- Money. A VM with a paid accelerator uses compute units from its start until it is stopped, also while nothing runs on it. The relay does not stop VMs by itself: ` + "`colab-relay vm list`" + ` shows what runs, and ` + "`colab-relay vm down`" + ` stops it.
- What the relay does. It keeps a VM alive only while code runs there, for at most 24 hours per VM. For that it sends one small request every 5 minutes; with Google's command line, it runs a comment in the VM's Jupyter kernel. It does not imitate a user at the page. The relay uses Google's own command line, or Google's official API, and no private interfaces. Google's command line itself uses interfaces that Google has not documented.
- What was not tested. Both ways were tested against imitations on one computer, never against Google's servers.`
