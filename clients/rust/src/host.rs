//! What the broker shows people of this machine.

/// The name of this host, as far as it has one that is text.
#[cfg(unix)]
#[allow(unsafe_code)]
pub(crate) fn name() -> Option<String> {
    let mut bytes = [0u8; 256];
    // SAFETY: the call writes at most as many bytes as there are.
    if unsafe { libc::gethostname(bytes.as_mut_ptr().cast(), bytes.len()) } != 0 {
        return None;
    }
    let end = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The name of this host.
#[cfg(not(unix))]
pub(crate) fn name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok().filter(|name| !name.is_empty() && name.len() <= 256)
}
