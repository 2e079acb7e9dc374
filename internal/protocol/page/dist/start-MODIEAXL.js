var o=()=>{import("./main-6TX7ADQC.js").catch(e=>{if(e instanceof TypeError)setTimeout(()=>location.reload(),1e3);else throw e})};document.hidden?o():requestAnimationFrame(()=>setTimeout(o));
